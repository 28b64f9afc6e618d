"""Writes affine.json: mx.quantize and mx.dequantize of MLX on the CPU over the rows that quant_test.go computes too.

python affine.py > affine.json
"""
import json
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
i = np.arange(128)
rows = {
    "mixed": ((i * 37 % 101) - 50) / 64.0,
    "negative": -((i * 29 % 97) + 1) / 128.0,
    "positive": ((i * 53 % 89) + 1) / 32.0,
    "zero": i * 0.0,
}
cases = []
for bits in (2, 3, 4, 5, 6, 8):
    for name, row in rows.items():
        w = mx.array(row[None], dtype=mx.float32)
        q, s, b = mx.quantize(w, group_size=64, bits=bits)
        d = mx.dequantize(q, s, b, group_size=64, bits=bits)
        raw = lambda a: np.array(a).tobytes().hex()
        cases.append({"bits": bits, "row": name, "packed": raw(q), "scales": raw(s), "biases": raw(b), "values": raw(d)})
print(json.dumps({"oracle": "mlx " + mx.__version__ + " cpu", "command": "python affine.py > affine.json", "cases": cases}, indent=0))
