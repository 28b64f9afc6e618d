"""Decodes trellis codes with numpy alone: the reference of quant.Trellis and of the kernels.

    python trellis.py > trellis.json

The rings are random bits, of which every one is a walk. Written from the definition: x = 34038481 s + 76625530 mod 2^32, the sum of its
bytes less 510 over 147.800537109375; the state of element t is L bits of the ring from bit (T - 1 - t) k on, around its end.
numpy 2.
"""
import base64
import hashlib
import json

import numpy as np

DEVIATION = np.float32(147.800537109375)


def decode(rings, scales, k, T, L):
    """rings [.., words] uint32, scales [..] float32 -> [.., T] float32"""
    bits = np.unpackbits(rings.astype("<u4").view(np.uint8).reshape(*rings.shape[:-1], -1), axis=-1, bitorder="little")
    assert bits.shape[-1] == T * k
    at = ((T - 1 - np.arange(T))[:, None] * k + np.arange(L)) % (T * k)
    state = (bits[..., at].astype(np.uint64) << np.arange(L, dtype=np.uint64)).sum(-1)
    x = (state * 34038481 + 76625530) & 0xFFFFFFFF
    total = sum((x >> np.uint64(s)) & np.uint64(255) for s in (0, 8, 16, 24)).astype(np.int32) - 510
    return (total.astype(np.float32) / DEVIATION) * scales[..., None]


cases = []
rng = np.random.default_rng(20)
for k, T, L in [(2, 16, 16), (2, 256, 16), (3, 32, 16), (3, 64, 12), (4, 32, 16), (4, 128, 9), (1, 32, 24), (5, 32, 32), (8, 16, 8)]:
    for axis in (0, 1):
        out, inn = (2 * T, 24) if axis == 0 else (24, 2 * T)
        shape = (out // T, inn) if axis == 0 else (out, inn // T)
        rings = rng.integers(0, 1 << 32, (*shape, T * k // 32), dtype=np.uint32)
        scales = rng.normal(0, 0.1, shape).astype(np.float32)
        w = decode(rings, scales, k, T, L)
        w = w.transpose(0, 2, 1).reshape(out, inn) if axis == 0 else w.reshape(out, inn)
        cases.append({
            "bits": k, "block": T, "state": L, "axis": axis, "out": out, "in": inn,
            "rings": base64.b64encode(rings.astype("<u4").tobytes()).decode(),
            "scales": base64.b64encode(scales.astype("<f4").tobytes()).decode(),
            "first": [float(v) for v in w.reshape(-1)[:4]],
            "sha256": hashlib.sha256(np.ascontiguousarray(w).astype("<f4").tobytes()).hexdigest(),
        })
print(json.dumps({"numpy": np.__version__, "cases": cases}, indent=0))
