"""Writes the goldens of adapters of qwen3.5: mlx-lm on the CPU at float32 over tiny checkpoints and tiny adapters, with MLX 0.32.4.

  for f in qwen35 qwen35-moe; do go run ./sdk/plugintest/tiny/cmd/tiny -family $f -out DIR; done
  go run ./sdk/plugintest/tiny/cmd/tiny -family qwen35-adapters -out ADAPTERS
  python plugins/qwen/testdata/adapters.py DIR ADAPTERS > plugins/qwen/testdata/adapters.json

An adapter of mlx-lm is loaded by mlx-lm's own load_adapters. One of PEFT is merged with numpy into the float32 matrices of the model, as PEFT
defines it: W + alpha/r B A. For each: the last row of logits after a prefill of 7 and 65 ids (float32, base64) and 32 greedy ids after 7.
"""
import base64
import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tuner.utils import load_adapters
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
LENGTHS, GREEDY = (7, 65), 32


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def merge(model, folder):
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    stored = {k: np.array(v, dtype=np.float64) for k, v in mx.load(str(folder / "adapter_model.safetensors")).items()}
    weights = dict(tree_flatten(model.parameters()))
    for name, a in stored.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removesuffix(".lora_A.weight")
        path = "language_model.model.layers." + module.split(".layers.")[1] + ".weight"
        merged = np.array(weights[path], dtype=np.float64) + scale * stored[module + ".lora_B.weight"] @ a
        model.load_weights([(path, mx.array(merged.astype(np.float32)))], strict=False)
    return model


def golden(folder):
    base, _, kind = folder.name.rpartition(".")
    model, config = load_model(Path(sys.argv[1]) / base, strict=True)
    widen = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(widen, model.parameters()))
    model = merge(model, folder) if kind == "peft" else load_adapters(model, str(folder))
    model.eval()
    vocab, rows = config.get("text_config", config)["vocab_size"], {}
    for n in LENGTHS:
        logits = model(mx.array([prompt(n, vocab)]), cache=make_prompt_cache(model))[0, -1]
        assert logits.dtype == mx.float32
        rows[str(n)] = base64.b64encode(np.array(logits).tobytes()).decode()
    steps = generate_step(mx.array(prompt(7, vocab)), model, max_tokens=GREEDY)
    return {"name": folder.name, "vocab": vocab, "last_rows": rows, "greedy": [int(t) for t, _ in steps]}


if __name__ == "__main__":
    # Quantized matrices take no numpy: PEFT's change of them has no oracle.
    folders = [p for p in sorted(Path(sys.argv[2]).iterdir()) if p.name != "qwen35-affine4.peft"]
    print(json.dumps({
        "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, numpy, cpu, float32",
        "command": "python adapters.py DIR ADAPTERS > adapters.json",
        "checkpoints": [golden(p) for p in folders],
    }, indent=1))
