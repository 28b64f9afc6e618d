"""Writes the goldens of the qwen graphs: mlx-lm on the CPU at float32 over the tiny checkpoints.

  go run ./sdk/plugintest/tiny/cmd/tiny -family qwen -out DIR
  python plugins/qwen/testdata/oracle.py DIR > plugins/qwen/testdata/qwen3.json

and with -family qwen-moe for qwen3_moe.json, with MLX 0.32.4: mlx-lm 0.32.2 hands the product of quantized experts an argument that
MLX 0.32.2 does not take.

For each checkpoint: the last row of logits after a prefill of 1, 7, 40 and 300 ids (float32, base64), 32 greedy ids after the
prefill of 7, and the normed last hidden state behind 1, 7 and 40 ids. A GGUF file runs on its dequantized weights.
"""
import base64
import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import gguf
import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

mx.set_default_device(mx.cpu)
LENGTHS, GREEDY, EMBEDDED = (1, 7, 40, 300), 32, (1, 7, 40)
GGUF_NAMES = [
    ("token_embd.", "model.embed_tokens."), ("blk.", "model.layers."), ("output_norm.", "model.norm."),
    ("attn_norm.", "input_layernorm."), ("ffn_norm.", "post_attention_layernorm."),
    ("attn_q_norm.", "self_attn.q_norm."), ("attn_k_norm.", "self_attn.k_norm."),
    ("attn_q.", "self_attn.q_proj."), ("attn_k.", "self_attn.k_proj."), ("attn_v.", "self_attn.v_proj."),
    ("attn_output.", "self_attn.o_proj."), ("ffn_gate.", "mlp.gate_proj."), ("ffn_up.", "mlp.up_proj."),
    ("ffn_down.", "mlp.down_proj."),
]


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def load_gguf(path):
    reader = gguf.GGUFReader(path)
    arch = reader.fields["general.architecture"].contents()
    get = lambda k: reader.fields[f"{arch}.{k}"].contents()
    stored = {t.name: mx.array(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)) for t in reader.tensors}
    args = {
        "model_type": arch, "hidden_size": get("embedding_length"), "num_hidden_layers": get("block_count"),
        "intermediate_size": get("feed_forward_length"), "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv"), "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "vocab_size": stored["token_embd.weight"].shape[0], "rope_theta": get("rope.freq_base"),
        "head_dim": get("attention.key_length"), "max_position_embeddings": get("context_length"),
        "tie_word_embeddings": "output.weight" not in stored,
    }
    weights = {}
    for name, w in stored.items():
        for old, new in GGUF_NAMES:
            name = name.replace(old, new)
        weights["lm_head.weight" if name == "output.weight" else name] = w
    module = importlib.import_module(f"mlx_lm.models.{args['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(args))
    model.load_weights(list(weights.items()), strict=True)
    return model, args["vocab_size"]


def is_bare(path):
    """A decoder that was saved alone: its names have no "model." in front."""
    return "norm.weight" in mx.load(str(path / "model.safetensors"))


def load(path):
    if path.suffix == ".gguf":
        return load_gguf(path)
    model, config = load_model(path, strict=not is_bare(path))
    if is_bare(path):
        weights = {"model." + name: w for name, w in mx.load(str(path / "model.safetensors")).items()}
        model.load_weights(list(weights.items()), strict=True)
    widen = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(widen, model.parameters()))
    return model, config["vocab_size"]


def row(a):
    assert a.dtype == mx.float32
    return base64.b64encode(np.array(a).tobytes()).decode()


def golden(path):
    model, vocab = load(path)
    ids = lambda n: mx.array([prompt(n, vocab)])
    rows = {str(n): row(model(ids(n), cache=make_prompt_cache(model))[0, -1]) for n in LENGTHS}
    hidden = {str(n): row(model.model(ids(n))[0, -1]) for n in EMBEDDED}
    steps = generate_step(mx.array(prompt(7, vocab)), model, max_tokens=GREEDY)
    return {"name": path.name, "vocab": vocab, "last_rows": rows, "greedy": [int(t) for t, _ in steps], "embeddings": hidden}


if __name__ == "__main__":
    paths = sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir() or p.suffix == ".gguf")
    print(json.dumps({
        "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, gguf {version('gguf')}, cpu, float32",
        "command": "python oracle.py DIR",
        "checkpoints": [golden(p) for p in paths],
    }, indent=1))
