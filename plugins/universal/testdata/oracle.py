"""Writes the goldens of the llama graph: mlx-lm on the CPU at float32 over the tiny checkpoints.

  go run ./sdk/plugintest/tiny/cmd/tiny -out DIR
  python plugins/universal/testdata/oracle.py DIR > plugins/universal/testdata/llama.json

For each checkpoint: the last row of logits after a prefill of 1, 7, 65 and 300 ids (float32, base64) and 64 greedy ids
after the prefill of 7. A GGUF file and MLX's modes of small floats run on their dequantized weights, the former with q and k
rows back in the half-split rope order.

Beside mlx-lm it needs gguf==0.19.0.
"""
import base64
import json
import sys
from importlib.metadata import version
from pathlib import Path

import gguf
import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
LENGTHS, GREEDY = (1, 7, 65, 300), 64
GGUF_NAMES = [
    ("token_embd.", "model.embed_tokens."), ("blk.", "model.layers."), ("output_norm.", "model.norm."),
    ("attn_norm.", "input_layernorm."), ("ffn_norm.", "post_attention_layernorm."),
    ("attn_q.", "self_attn.q_proj."), ("attn_k.", "self_attn.k_proj."), ("attn_v.", "self_attn.v_proj."),
    ("attn_output.", "self_attn.o_proj."), ("ffn_gate.", "mlp.gate_proj."), ("ffn_up.", "mlp.up_proj."),
    ("ffn_down.", "mlp.down_proj."),
]


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def half_split(w, heads):
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


class FactoredRope(nn.Module):
    """rope_freqs.weight of a GGUF: a divisor of each frequency."""

    def __init__(self, dims, base, factors):
        super().__init__()
        self.dims = dims
        self._freqs = factors * base ** (mx.arange(0, dims, 2, dtype=mx.float32) / dims)

    def __call__(self, x, offset=0):
        return mx.fast.rope(x, self.dims, traditional=False, base=None, scale=1.0, offset=offset, freqs=self._freqs)


def load_gguf(path):
    reader = gguf.GGUFReader(path)
    get = lambda k: reader.fields["llama." + k].contents()
    stored = {t.name: mx.array(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)) for t in reader.tensors}
    args = llama.ModelArgs(
        model_type="llama", hidden_size=get("embedding_length"), num_hidden_layers=get("block_count"),
        intermediate_size=get("feed_forward_length"), num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        vocab_size=stored["token_embd.weight"].shape[0], rope_theta=get("rope.freq_base"),
        tie_word_embeddings="output.weight" not in stored,
    )
    factors = stored.pop("rope_freqs.weight", None)
    weights = {}
    for name, w in stored.items():
        if "attn_q." in name:
            w = half_split(w, args.num_attention_heads)
        if "attn_k." in name:
            w = half_split(w, args.num_key_value_heads)
        for old, new in GGUF_NAMES:
            name = name.replace(old, new)
        weights["lm_head.weight" if name == "output.weight" else name] = w
    model = llama.Model(args)
    model.load_weights(list(weights.items()), strict=True)
    if factors is not None:
        for layer in model.layers:
            layer.self_attn.rope = FactoredRope(factors.size * 2, args.rope_theta, factors)
    return model, args.vocab_size


def load_small_floats(path, config):
    """A model on float32 weights that mx.dequantize made; mlx-lm itself takes no global scale of a dense layer."""
    stored, block = mx.load(str(path / "model.safetensors")), config["quantization"]
    weights = {}
    for name, w in stored.items():
        base = name.removesuffix(".weight")
        if base + ".scales" in stored and name != base:
            own = block.get(base, {"mode": "affine"} if base + ".biases" in stored else block)
            w = mx.dequantize(
                w, stored[base + ".scales"], stored.get(base + ".biases"), own.get("group_size"), own.get("bits"),
                own.get("mode", "affine"), stored.get(base + ".global_scale"), mx.float32)
        if not name.endswith((".scales", ".biases", ".global_scale")):
            weights[name] = w.astype(mx.float32)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.load_weights(list(weights.items()), strict=True)
    return model, config["vocab_size"]


def load(path):
    if path.suffix == ".gguf":
        return load_gguf(path)
    config = json.loads((path / "config.json").read_text())
    if config.get("quantization", {}).get("mode", "affine") != "affine":
        return load_small_floats(path, config)
    model, config = load_model(path, strict=True)
    widen = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(widen, model.parameters()))
    return model, config["vocab_size"]


def golden(path):
    model, vocab = load(path)
    rows = {}
    for n in LENGTHS:
        logits = model(mx.array([prompt(n, vocab)]), cache=make_prompt_cache(model))[0, -1]
        assert logits.dtype == mx.float32
        rows[str(n)] = base64.b64encode(np.array(logits).tobytes()).decode()
    steps = generate_step(mx.array(prompt(7, vocab)), model, max_tokens=GREEDY)
    return {"name": path.name, "vocab": vocab, "last_rows": rows, "greedy": [int(t) for t, _ in steps]}


if __name__ == "__main__":
    paths = sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir() or p.suffix == ".gguf")
    print(json.dumps({
        "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, gguf {version('gguf')}, cpu, float32",
        "command": "python oracle.py DIR > llama.json",
        "checkpoints": [golden(p) for p in paths],
    }, indent=1))
