"""Writes awq.json: what mlx-lm's _transform_awq_weights makes of a random matrix in AutoAWQ's layout.

  python awq.py > awq.json
"""
import base64
import json

import mlx.core as mx
import numpy as np
from mlx_lm.utils import _transform_awq_weights

IN, OUT, GROUP = 64, 24, 32
rng = np.random.default_rng(20260)
words = lambda *shape: rng.integers(-(2**31), 2**31, shape).astype(np.int32)
text = lambda a: base64.b64encode(np.array(a).tobytes()).decode()
q, z, s = words(IN, OUT // 8), words(IN // GROUP, OUT // 8), rng.normal(0, 0.1, (IN // GROUP, OUT)).astype(np.float16)
stored = {"a.qweight": mx.array(q), "a.scales": mx.array(s), "a.qzeros": mx.array(z)}
made, _ = _transform_awq_weights(dict(stored), {"bits": 4, "group_size": GROUP})
del stored["a.qzeros"]
even, _ = _transform_awq_weights(stored, {"bits": 4, "group_size": GROUP})
print(json.dumps({
    "In": IN, "Out": OUT, "Group": GROUP, "QWeight": text(q), "QZeros": text(z), "Scales": text(s),
    "Weight": text(made["a.weight"]), "NewScales": text(made["a.scales"]), "Biases": text(made["a.biases"]), "Even": text(even["a.biases"]),
}, indent=1))
