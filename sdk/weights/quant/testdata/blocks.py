"""Writes blocks.json: what gguf-py makes of GGUF blocks, NaN as the bits of one NaN.

  pip install gguf==0.19.0
  python blocks.py > blocks.json

Of each type: two blocks of random bytes with ordinary halves, and one for each half that could go wrong.
"""
import base64
import json
from importlib.metadata import version

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where the halves d and m (or dmin) lie; MXFP4 has an exponent byte instead.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
}
# Largest finite, negative largest, smallest subnormal, infinite, negative infinite, NaN.
EXTREMES = [0x7BFF, 0xFBFF, 0x0001, 0x7C00, 0xFC00, 0x7E00]
EXPONENTS = [0, 1, 2, 127, 251, 252, 254, 255]

rng = np.random.default_rng(20261130)
b64 = lambda a: base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()
types = []
for t, halves in HALVES.items():
    values, size = GGML_QUANT_SIZES[t]
    ordinary = [0x1000 + int(rng.integers(0x2000)) for _ in range(4)]
    cases = [ordinary[:2], ordinary[2:]] + [[x, ordinary[0]] for x in EXTREMES]
    if not halves:
        cases = EXPONENTS
    elif len(halves) == 2:
        cases += [[ordinary[0], x] for x in EXTREMES[:4]]
    blocks = rng.integers(0, 256, (len(cases), size), dtype=np.uint8)
    for block, case in zip(blocks, cases):
        for at, h in zip(halves, case if halves else []):
            block[at:at + 2] = np.frombuffer(np.uint16(h).tobytes(), np.uint8)
        if not halves:
            block[0] = case
    with np.errstate(all="ignore"):
        out = dequantize(blocks.reshape(1, -1), t).astype(np.float32).reshape(-1)
    out[np.isnan(out)] = np.float32(np.nan)
    types.append({"name": t.name, "rows": len(cases), "src": b64(blocks), "values": b64(out)})
print(json.dumps({"oracle": "gguf " + version("gguf"), "command": "python blocks.py > blocks.json", "types": types}, indent=0))
