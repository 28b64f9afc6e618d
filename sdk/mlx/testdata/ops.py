"""Makes ops.json: results of MLX 0.32.2 (CPU) from Python, for the binding's argument order and defaults.

    python testdata/ops.py > testdata/ops.json
"""
import json

import mlx.core as mx

mx.set_default_device(mx.cpu)
assert mx.__version__ == "0.32.2", mx.__version__


def grid(*shape):
    n = 1
    for d in shape:
        n *= d
    return (mx.arange(n, dtype=mx.float32) * 37 % 61 / 30 - 1).reshape(shape)


cases = {}


def case(name, *outs):
    rows = []
    for o in outs:
        kind = str(o.dtype).split(".")[-1]
        rows.append({"shape": list(o.shape), "dtype": kind, "values": [round(float(v), 7) for v in o.flatten().tolist()]})
    cases[name] = rows


x = grid(2, 3, 4, 8)
freqs = mx.array([1.0, 3.0, 9.0, 27.0])
case("rope", mx.fast.rope(x, 8, traditional=False, base=10000.0, scale=1.0, offset=3))
case("rope_traditional", mx.fast.rope(x, 4, traditional=True, base=500.0, scale=0.5, offset=1))
case("rope_freqs", mx.fast.rope(x, 8, traditional=False, base=None, scale=1.0, offset=2, freqs=freqs))
case("rope_at", mx.fast.rope(x, 8, traditional=False, base=10000.0, scale=1.0, offset=mx.array([1, 5])))
case("rms_norm", mx.fast.rms_norm(x, grid(8), 1e-5))
case("rms_norm_none", mx.fast.rms_norm(x, None, 1e-2))
case("layer_norm", mx.fast.layer_norm(x, grid(8), None, 1e-5))
q, k, v = grid(1, 4, 3, 8), grid(1, 2, 5, 8) * 0.5, grid(1, 2, 5, 8) + 0.25
case("sdpa", mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3))
case("sdpa_causal", mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask="causal"))
case("sdpa_array", mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=grid(3, 5) > 0))
case("sdpa_sinks", mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, sinks=grid(4)))
w = grid(4, 64)
for bits in (4, 8):
    wq, sc, bi = mx.quantize(w, group_size=32, bits=bits)
    case(f"quantize{bits}", wq.view(mx.uint8), sc, bi)
    case(f"dequantize{bits}", mx.dequantize(wq, sc, bi, group_size=32, bits=bits))
    case(f"quantized_matmul{bits}", mx.quantized_matmul(grid(3, 64), wq, sc, bi, transpose=True, group_size=32, bits=bits))
wq, sc = mx.quantize(w, mode="mxfp4")
case("quantize_mxfp4", wq.view(mx.uint8), sc)
case("dequantize_mxfp4", mx.dequantize(wq, sc, mode="mxfp4"))
experts = grid(3, 4, 64)
wq, sc, bi = mx.quantize(experts, group_size=32, bits=4)
ids = mx.array([2, 0], dtype=mx.uint32)
case("gather_qmm", mx.gather_qmm(grid(2, 1, 64), wq, sc, bi, rhs_indices=ids, transpose=True, group_size=32, bits=4))
case("gather_mm", mx.gather_mm(grid(2, 1, 64), experts.swapaxes(-1, -2), rhs_indices=ids))
y = grid(3, 5)
case("softmax", mx.softmax(y, axis=-1), mx.softmax(y, axis=0, precise=True))
case("logsumexp", mx.logsumexp(y, axis=-1, keepdims=True))
case("argmax", mx.argmax(y, axis=1))
case("sort", mx.sort(y, axis=0), mx.argsort(y, axis=1))
case("topk", mx.sort(mx.topk(y, 2, axis=-1), axis=-1))
case("argpartition", mx.argpartition(y, kth=2, axis=-1))
case("take", mx.take(y, mx.array([2, 0]), axis=0))
case("take_along", mx.take_along_axis(y, mx.array([[1], [0], [4]]), axis=1))
case("where", mx.where(y > 0, y, -y))
case("concat", mx.concatenate([y, y * 2], axis=1))
case("split", *mx.split(grid(4, 6), 3, axis=1))
case("split_sections", *mx.split(grid(4, 6), [1, 4], axis=1))
z = mx.array(grid(4, 6))
z[1:3, 2:5] = grid(2, 3)
case("slice_update", z)
case("cumsum", mx.cumsum(y, axis=1))
case("var", mx.var(y, axis=1, keepdims=True, ddof=1))
case("addmm", mx.addmm(grid(3, 2), y, grid(5, 2), alpha=0.5, beta=2.0))
case("clip", mx.clip(y, -0.5, None))
case("einsum", mx.einsum("ij,kj->ik", y, y))
case("conv1d", mx.conv1d(grid(1, 7, 4), grid(3, 2, 4), stride=2, padding=1))
case("pad", mx.pad(y, [(1, 0), (0, 2)], constant_values=mx.array(7.0)))
case("bf16_scalar", (y.astype(mx.bfloat16) * 5.66))
case("random", mx.random.uniform(0, 1, (4,), key=mx.random.key(7)), mx.random.normal((4,), key=mx.random.key(7)))
case("random_split", mx.random.split(mx.random.key(1))[1])
case("rfft", mx.abs(mx.fft.rfft(y, axis=-1)))
case("norm", mx.linalg.norm(y, axis=-1, stream=mx.cpu))
case("arange", mx.arange(1, 7, 2.0, dtype=mx.float32))
print(json.dumps(cases, indent=None, separators=(",", ":")))
