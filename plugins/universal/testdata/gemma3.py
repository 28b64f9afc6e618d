"""Writes gemma3.json: what mlx-lm answers on Gemma 3 270M's dequantized weights, and llama.cpp's perplexity on the same file.

  python gemma3.py PATH/gemma-3-270m-q4_k_m.gguf > gemma3.json

The file holds 1 + w of every norm, of which mlx-lm wants w. The text's ids are llama.cpp's, behind <bos>.
"""
import json
import math
import os
import sys

os.environ["MLX_DISABLE_COMPILE"] = "1"
import gguf
import mlx.core as mx
import mlx_lm
import numpy as np
import llama_cpp
from mlx_lm.generate import generate_step
from mlx_lm.models import gemma3_text

mx.set_default_device(mx.cpu)
PLAIN = llama_cpp.llama_cpp.llama_model_default_params


def without_extra_buffers():
    """Its AMX path ends the process on some machines."""
    params = PLAIN()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = without_extra_buffers
PROMPTS = ["The capital of France is", "Water boils at"]
TEXT = (
    "A lighthouse keeper counts the ships that pass in the night. Some of them answer his lamp, others do not, and in the morning he "
    "writes their number into a book that nobody has asked for. When the company sent an inspector, he read the book from the first "
    "page to the last, closed it, and asked for a second copy. It was winter then, and the sea was quiet for a week."
)
NAMES = [
    ("token_embd.", "model.embed_tokens."), ("blk.", "model.layers."), ("output_norm.", "model.norm."), ("attn_q_norm.", "self_attn.q_norm."),
    ("attn_k_norm.", "self_attn.k_norm."), ("post_attention_norm.", "post_attention_layernorm."), ("attn_norm.", "input_layernorm."),
    ("post_ffw_norm.", "post_feedforward_layernorm."), ("ffn_norm.", "pre_feedforward_layernorm."), ("attn_q.", "self_attn.q_proj."),
    ("attn_k.", "self_attn.k_proj."), ("attn_v.", "self_attn.v_proj."), ("attn_output.", "self_attn.o_proj."), ("ffn_gate.", "mlp.gate_proj."),
    ("ffn_up.", "mlp.up_proj."), ("ffn_down.", "mlp.down_proj."),
]


def load(path):
    reader = gguf.GGUFReader(path)
    get = lambda k: reader.fields["gemma3." + k].contents()
    weights = {}
    for t in reader.tensors:
        name = t.name
        for old, new in NAMES:
            name = name.replace(old, new)
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        weights[name] = mx.array(w - 1 if "norm" in name else w)
    model = gemma3_text.Model(gemma3_text.ModelArgs(
        model_type="gemma3_text", hidden_size=get("embedding_length"), num_hidden_layers=get("block_count"),
        intermediate_size=get("feed_forward_length"), num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), head_dim=get("attention.key_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), vocab_size=weights["model.embed_tokens.weight"].shape[0],
        rope_theta=get("rope.freq_base"), sliding_window=get("attention.sliding_window"), query_pre_attn_scalar=get("attention.key_length")))
    model.load_weights(list(model.sanitize(weights).items()), strict=True)
    return model


def perplexity(logits, ids):
    logits = logits.astype(np.float64)
    picked = logits[np.arange(len(ids) - 1), ids[1:]]
    top = logits[:-1].max(-1)
    return math.exp(-np.mean(picked - top - np.log(np.exp(logits[:-1] - top[:, None]).sum(-1))))


path = sys.argv[1]
llama = llama_cpp.Llama(path, n_ctx=512, logits_all=True, verbose=False, n_threads=2)
model = load(path)
cases = []
for prompt in PROMPTS:
    ids = llama.tokenize(prompt.encode(), add_bos=True)
    out = [int(t) for t, _ in generate_step(mx.array(ids), model, max_tokens=24)]
    cases.append({"prompt": prompt, "ids": ids, "greedy": out})
ids = llama.tokenize(TEXT.encode(), add_bos=True)
llama.eval(ids)
theirs = perplexity(np.array(llama.scores[: len(ids)]), ids)
oracle = perplexity(np.array(model(mx.array([ids]))[0]), ids)
print(json.dumps({
    "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, cpu, float32, on dequantized weights; llama-cpp-python {llama_cpp.__version__}",
    "command": "python gemma3.py PATH/gemma-3-270m-q4_k_m.gguf > gemma3.json",
    "cases": cases, "text": TEXT, "text_ids": ids, "perplexity": {"llama.cpp": theirs, "mlx-lm": oracle},
}, indent=1))
