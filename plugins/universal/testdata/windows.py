"""Writes the goldens of kv_window: schemes.py's llama whose layers see a window and the first tokens, over tiny checkpoints.

  go run ./sdk/plugintest/tiny/cmd/tiny -out DIR
  python plugins/universal/testdata/windows.py DIR sdk/kv > plugins/universal/testdata/windows.json

For each window and number of first tokens: the logits (float32, base64) of positions of 1,100 ids at the borders of the window, of the
tiles of 256, and of the ring, which has turned by then. Needs numpy alone.
"""
import base64
import json
import sys
from pathlib import Path

import numpy as np

import schemes

LENGTH = 1100
CASES = [
    ("llama-untied-headdim", "native", 40, 4), ("llama-untied-headdim", "native", 1, 1), ("llama-untied-headdim", "native", 300, 256),
    ("llama-untied-headdim", "native", 256, 0), ("llama-untied-headdim", "affine:8g32", 100, 5), ("llama-sliding", "native", 40, 4),
]


def main(folder):
    out = []
    for name, scheme, window, keep in CASES:
        config, w = json.loads((folder / name / "config.json").read_text()), schemes.tensors(folder / name)
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
        ids = [(i * i * 31 + i * 7 + 11) % config["vocab_size"] for i in range(LENGTH)]
        made = schemes.logits(config, w, ids, schemes.SCHEMES[scheme][0], 0, (window, keep))
        ring = (window + 256 + 255) // 256 * 256
        rows = {0, keep, window - 1, window, window + keep, 255, 256, 257, 511, 512, ring - 1, ring, ring + 256, LENGTH - 1}
        rows = {str(r): made[r].astype("<f4") for r in sorted(rows) if r < LENGTH}
        out.append({
            "name": name, "scheme": scheme, "window": window, "keep": keep,
            "rows": {r: base64.b64encode(v.tobytes()).decode() for r, v in rows.items()},
        })
    print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")


with np.errstate(all="ignore"):
    main(Path(sys.argv[1]))
