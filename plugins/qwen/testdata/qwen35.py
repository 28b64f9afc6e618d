"""Writes the goldens of the qwen3.5 graph: mlx-lm on the CPU at float32 over the tiny checkpoints.

  go run ./sdk/plugintest/tiny/cmd/tiny -family qwen35 -out DIR
  python plugins/qwen/testdata/qwen35.py DIR > plugins/qwen/testdata/qwen35.json

and with -family qwen35-moe for qwen35_moe.json, with MLX 0.32.4: mlx-lm 0.32.2 runs quantized experts on no older one.

For each checkpoint: the last row of logits after a prefill of 1, 7, 40 and 300 ids (float32, base64) and 32 greedy ids after the
prefill of 7. Weights are widened to float32 after mlx-lm has read them as they are stored.
"""
import base64
import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
LENGTHS, GREEDY = (1, 7, 40, 300), 32


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def golden(path):
    model, config = load_model(path, strict=True)
    widen = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(widen, model.parameters()))
    vocab = config.get("text_config", config)["vocab_size"]
    rows = {}
    for n in LENGTHS:
        logits = model(mx.array([prompt(n, vocab)]), cache=make_prompt_cache(model))[0, -1]
        assert logits.dtype == mx.float32
        rows[str(n)] = base64.b64encode(np.array(logits).tobytes()).decode()
    steps = generate_step(mx.array(prompt(7, vocab)), model, max_tokens=GREEDY)
    return {"name": path.name, "vocab": vocab, "last_rows": rows, "greedy": [int(t) for t, _ in steps]}


if __name__ == "__main__":
    paths = sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir())
    print(json.dumps({
        "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, cpu, float32",
        "command": "python qwen35.py DIR > qwen35.json",
        "checkpoints": [golden(p) for p in paths],
    }, indent=1))
