"""Writes floatblocks.json: what mx.dequantize makes of every element at telling scales, NaN as the bits of one NaN.

  python floatblocks.py > floatblocks.json
"""
import base64
import json

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
SCALES = {
    "mxfp4": [0, 1, 2, 100, 120, 127, 128, 250, 251, 252, 253, 254, 255],
    "mxfp8": [0, 1, 2, 3, 4, 120, 127, 128, 246, 247, 254, 255],
    "nvfp4": [0, 1, 7, 8, 0x37, 0x38, 0x45, 0x7E, 0x7F, 0x80, 0xB8, 0xFE, 0xFF],
}
GLOBALS = {"mxfp4": [None], "mxfp8": [None], "nvfp4": [None, 2688.0, 30.1, 1e-30, 1e37, 0.0, float("inf"), float("nan")]}
GROUP = {"mxfp4": 32, "nvfp4": 16, "mxfp8": 32}
b64 = lambda a: base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()
cases = []
for mode, scales in SCALES.items():
    q = np.arange(256, dtype=np.uint8)  # for four bits every pair of neighbours
    if mode != "mxfp8":
        q = np.concatenate([(q[:16] << 4 | q[15::-1]), q[:16] << 4 | q[:16]]).astype(np.uint8)
    n = q.size * (1 if mode == "mxfp8" else 2)
    for g in GLOBALS[mode]:
        w = mx.array(np.tile(q, (len(scales), 1)).view(np.uint32))
        s = mx.array(np.repeat(np.array(scales, np.uint8)[:, None], n // GROUP[mode], 1))
        more = {} if g is None else {"global_scale": mx.array(g, dtype=mx.float32)}
        d = np.array(mx.dequantize(w, s, mode=mode, dtype=mx.float32, **more))
        d[np.isnan(d)] = np.float32(np.nan)
        cases.append({
            "mode": mode, "bits": 8 if mode == "mxfp8" else 4, "group": GROUP[mode], "rows": len(scales),
            "global": None if g is None else b64(np.float32(g)), "codes": b64(np.array(w)), "scales": b64(np.array(s)), "values": b64(d),
        })
print(json.dumps({"oracle": "mlx " + mx.__version__ + " cpu", "command": "python floatblocks.py > floatblocks.json", "cases": cases}, indent=0))
