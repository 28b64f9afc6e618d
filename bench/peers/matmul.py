"""The best float32 2048^3 product of this machine, for the bench: one JSON line.

    python matmul.py THREADS

Tries OpenBLAS (numpy's) and, where the package onednn is installed, oneDNN, over 1 to THREADS threads. A set OPENBLAS_CORETYPE
is not used: it may name an older processor.
"""
import json
import os
import sys
import time

threads = int(sys.argv[1])
if "OPENBLAS_CORETYPE" in os.environ:
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(name, None)
    os.execv(sys.executable, [sys.executable, *sys.argv])

import ctypes
import glob

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

N = 2048
rng = np.random.default_rng(1)
a, b = rng.standard_normal((N, N), dtype=np.float32), rng.standard_normal((N, N), dtype=np.float32)
out = np.empty((N, N), dtype=np.float32)


def speeds(product, repeats=5):
    product()
    result = []
    for _ in range(repeats):
        start = time.perf_counter()
        product()
        result.append(2 * N**3 / (time.perf_counter() - start) / 1e9)
    return sorted(result)


best, tried = [], []


def consider(name, result):
    global best
    tried.append(f"{name} {result[len(result) // 2]:.0f} GFLOP/s")
    if not best or result[len(result) // 2] > best[len(best) // 2]:
        best = result


for n in range(1, threads + 1):
    with threadpool_limits(n):
        consider(f"OpenBLAS on {n}", speeds(lambda: np.matmul(a, b, out=out)))
kernels = {i.get("architecture") for i in threadpool_info() if i["internal_api"] == "openblas"}
tried.append(f"OpenBLAS runs {', '.join(sorted(k for k in kernels if k))}")

found = glob.glob(os.path.join(sys.prefix, "lib", "libdnnl.so*")) + glob.glob(os.path.join(sys.prefix, "lib*", "libdnnl.so*"))
if found:
    lib = ctypes.CDLL(found[0])
    p = lambda x: x.ctypes.data_as(ctypes.c_void_p)
    i64, f32 = ctypes.c_int64, ctypes.c_float

    def onednn():
        rc = lib.dnnl_sgemm(ctypes.c_char(b"N"), ctypes.c_char(b"N"), i64(N), i64(N), i64(N), f32(1), p(a), i64(N), p(b), i64(N), f32(0), p(out), i64(N))
        if rc != 0:
            raise RuntimeError(f"dnnl_sgemm: {rc}")

    consider("oneDNN", speeds(onednn))
else:
    tried.append("oneDNN is not installed")
print(json.dumps({"gflops": best, "tried": tried}))
