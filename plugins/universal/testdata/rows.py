"""Writes rows.json: mlx-lm on the CPU over the tiny checkpoints of the dense graph's rows.

  go run ./sdk/plugintest/tiny/cmd/tiny -family dense -out DIR
  python plugins/universal/testdata/rows.py DIR > plugins/universal/testdata/rows.json

For each checkpoint, at float32: the last row of logits after a prefill of 1, 7, 40 and 300 ids (float32, base64) and 32 greedy ids
after the prefill of 7. For those of float weights also, at bfloat16 and with mx.compile off: the SHA-256 of the last row's bytes
as float32 after 1 and 40 ids.
"""
import base64
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["MLX_DISABLE_COMPILE"] = "1"
import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
LENGTHS, EXACT, GREEDY = (1, 7, 40, 300), (1, 40), 32


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def cast(model, dtype):
    model.update(tree_map(lambda a: a.astype(dtype) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters()))


def last(model, n, vocab):
    logits = model(mx.array([prompt(n, vocab)]), cache=make_prompt_cache(model))[0, -1]
    return logits, np.array(logits.astype(mx.float32)).tobytes()


def golden(path):
    model, config = load_model(path, strict=True)
    vocab = config.get("vocab_size") or config["text_config"]["vocab_size"]
    cast(model, mx.float32)
    rows = {}
    for n in LENGTHS:
        logits, raw = last(model, n, vocab)
        assert logits.dtype == mx.float32
        rows[str(n)] = base64.b64encode(raw).decode()
    steps = generate_step(mx.array(prompt(7, vocab)), model, max_tokens=GREEDY)
    out = {"name": path.name, "vocab": vocab, "last_rows": rows, "greedy": [int(t) for t, _ in steps]}
    if "quantization" not in config:
        cast(model, mx.bfloat16)
        out["bfloat16"] = {str(n): hashlib.sha256(last(model, n, vocab)[1]).hexdigest() for n in EXACT}
    return out


if __name__ == "__main__":
    print(json.dumps({
        "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, cpu",
        "command": "python rows.py DIR > rows.json",
        "checkpoints": [golden(p) for p in sorted(Path(sys.argv[1]).iterdir())],
    }, indent=1))
