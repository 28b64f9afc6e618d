"""Writes a GGUF of random weights in a model's shape, for the bench: JSON of the shape, then the file.

    python shape_gguf.py '{"hidden": 1024, "layers": 28, ...}' OUT.gguf

Matrices are Q4_0: 4.5 bits a value, as MLX's affine codes of 4 bits in groups of 64 have. Values mean nothing.
"""
import json
import sys

import gguf
import numpy as np

s = json.loads(sys.argv[1])
arch = "qwen3moe" if s["experts"] else "qwen3"
w = gguf.GGUFWriter(sys.argv[2], arch)
w.add_context_length(16384)
w.add_embedding_length(s["hidden"])
w.add_block_count(s["layers"])
w.add_feed_forward_length(s["inter"])
w.add_head_count(s["heads"])
w.add_head_count_kv(s["kv_heads"])
w.add_key_length(s["dim"])
w.add_value_length(s["dim"])
w.add_layer_norm_rms_eps(1e-6)
w.add_rope_freq_base(1e6)
w.add_file_type(2)
if s["experts"]:
    w.add_expert_count(s["experts"])
    w.add_expert_used_count(s["top_k"])
    w.add_expert_feed_forward_length(s["width"])
w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("qwen2")
w.add_token_list([f"t{i}" for i in range(s["vocab"])])
w.add_token_types([1] * s["vocab"])
w.add_token_merges(["t 1"])
w.add_eos_token_id(0)
w.add_bos_token_id(1)

rng = np.random.default_rng(1)


def matrix(name, *shape):
    rows = int(np.prod(shape[:-1]))
    blocks = np.empty((rows * shape[-1] // 32, 18), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(2**-8).tobytes(), np.uint8)
    blocks[:, 2:] = rng.integers(0, 256, (len(blocks), 16), dtype=np.uint8)
    w.add_tensor(name + ".weight", blocks.reshape(*shape[:-1], -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)


def ones(name, n):
    w.add_tensor(name + ".weight", np.ones(n, np.float32))


h, d = s["hidden"], s["dim"]
matrix("token_embd", s["vocab"], h)
for i in range(s["layers"]):
    b = f"blk.{i}."
    ones(b + "attn_norm", h)
    matrix(b + "attn_q", s["heads"] * d, h)
    matrix(b + "attn_k", s["kv_heads"] * d, h)
    matrix(b + "attn_v", s["kv_heads"] * d, h)
    matrix(b + "attn_output", h, s["heads"] * d)
    ones(b + "attn_q_norm", d)
    ones(b + "attn_k_norm", d)
    ones(b + "ffn_norm", h)
    if s["experts"]:
        w.add_tensor(b + "ffn_gate_inp.weight", rng.normal(0, 0.03, (s["experts"], h)).astype(np.float32))
        matrix(b + "ffn_gate_exps", s["experts"], s["width"], h)
        matrix(b + "ffn_up_exps", s["experts"], s["width"], h)
        matrix(b + "ffn_down_exps", s["experts"], h, s["width"])
    else:
        matrix(b + "ffn_gate", s["inter"], h)
        matrix(b + "ffn_up", s["inter"], h)
        matrix(b + "ffn_down", h, s["inter"])
ones("output_norm", h)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
