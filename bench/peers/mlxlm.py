"""mlx-lm at float32 on the CPU, as a peer of the bench: the same JSON lines as llama.py.

    python mlxlm.py MODEL.gguf

The GGUF's weights are dequantized to float32 (its fastest dtype on x86) and q and k rows put back from llama.cpp's
interleaved rope order into the half-split one that mlx-lm computes with. Prefill and decode are mlx-lm's own generate_step:
the whole prompt but its last token in steps of 2048, logits for the last position only.
"""
import json
import sys
import time

import mlx.core as mx
import mlx_lm
import numpy as np
from gguf import GGUFReader, dequantize
from mlx_lm.generate import generate_step
from mlx_lm.models import llama

mx.set_default_device(mx.cpu)
reader = GGUFReader(sys.argv[1])


def meta(key):
    field = reader.fields["llama." + key]
    return field.parts[field.data[0]].tolist()[0]


heads, kv_heads = meta("attention.head_count"), meta("attention.head_count_kv")
tensors = {t.name: t for t in reader.tensors}
args = llama.ModelArgs(
    model_type="llama", hidden_size=meta("embedding_length"), num_hidden_layers=meta("block_count"),
    intermediate_size=meta("feed_forward_length"), num_attention_heads=heads, num_key_value_heads=kv_heads,
    rms_norm_eps=meta("attention.layer_norm_rms_epsilon"), vocab_size=int(tensors["token_embd.weight"].shape[1]),
    rope_theta=meta("rope.freq_base"), tie_word_embeddings="output.weight" not in tensors,
)
names = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def half_split(rows, n):
    out, width = rows.shape
    return rows.reshape(n, out // n // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def weights():
    for name, t in tensors.items():
        parts = name.removesuffix(".weight").split(".")
        if parts[-1] == "rope_freqs":
            continue
        rows = dequantize(t.data, t.tensor_type).astype(np.float32)
        if parts[-1] == "attn_q":
            rows = half_split(rows, heads)
        elif parts[-1] == "attn_k":
            rows = half_split(rows, kv_heads)
        prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        yield prefix + names[parts[-1]] + ".weight", mx.array(rows)


model = llama.Model(args)
model.load_weights(list(weights()))
mx.eval(model.parameters())


def answer(request):
    tokens = request["tokens"] if request["op"] == "decode" else 0
    start = time.perf_counter()
    out = []
    for token, _ in generate_step(mx.array(request["ids"]), model, max_tokens=tokens + 1):
        out.append(int(token))
        if len(out) == 1 and tokens:
            start = time.perf_counter()
    return {"seconds": time.perf_counter() - start, "ids": out}


print(json.dumps({"ready": True, "version": "mlx-lm " + mlx_lm.__version__, "info": "mlx " + mx.__version__ + " cpu float32"}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
