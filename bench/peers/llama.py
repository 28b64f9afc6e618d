"""llama.cpp through llama-cpp-python, as a peer of the bench: JSON lines on stdin and stdout.

    python llama.py MODEL.gguf THREADS

Requests: {"op": "prefill", "ids": [...]} and {"op": "decode", "ids": [...], "tokens": n} -> {"seconds": s, "ids": [...]}.
Decoding is greedy and ignores the end of the text. The library's low-level calls are used, so that no Python runs between a
step's kernels; llama.cpp's own log goes to stderr.
"""
import ctypes
import json
import os
import sys
import time

import llama_cpp as lc
import numpy as np

model_path, threads = sys.argv[1], int(sys.argv[2])


@lc.llama_log_callback
def quiet(level, text, data):
    pass


lc.llama_log_set(quiet, ctypes.c_void_p(0))
lc.llama_backend_init()
model_params = lc.llama_model_default_params()
model_params.use_extra_bufts = os.environ.get("BENCH_LLAMA_EXTRA_BUFFERS") != "0"
model = lc.llama_model_load_from_file(model_path.encode(), model_params)
if not model:
    sys.exit(f"llama.cpp cannot load {model_path}")
params = lc.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch = 1024, 512, 512
params.n_threads = params.n_threads_batch = threads
ctx = lc.llama_init_from_model(model, params)
vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))


def forward(ids):
    tokens = (lc.llama_token * len(ids))(*ids)
    if lc.llama_decode(ctx, lc.llama_batch_get_one(tokens, len(ids))) != 0:
        sys.exit("llama_decode failed")
    lc.llama_synchronize(ctx)


def greedy():
    return int(np.ctypeslib.as_array(lc.llama_get_logits_ith(ctx, -1), shape=(vocab,)).argmax())


def batched(request):
    """rows sequences with the same prompt decode together; the time is that of the steps."""
    ids, rows = request["ids"], request["rows"]
    p = lc.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = rows * (len(ids) + request["tokens"] + 8), 512, 512, rows
    p.n_threads = p.n_threads_batch = threads
    p.kv_unified = True
    c = lc.llama_init_from_model(model, p)
    batch = lc.llama_batch_init(512, 0, 1)

    def put(entries):
        batch.n_tokens = len(entries)
        for i, (token, position, row, wanted) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = row, wanted
        if lc.llama_decode(c, batch) != 0:
            sys.exit("llama_decode failed")
        lc.llama_synchronize(c)

    def best(i):
        return int(np.ctypeslib.as_array(lc.llama_get_logits_ith(c, i), shape=(vocab,)).argmax())

    tokens = []
    for row in range(rows):
        put([(t, i, row, i == len(ids) - 1) for i, t in enumerate(ids)])
        tokens.append(best(len(ids) - 1))
    start = time.perf_counter()
    for step in range(request["tokens"]):
        put([(tokens[row], len(ids) + step, row, True) for row in range(rows)])
        tokens = [best(row) for row in range(rows)]
    seconds = time.perf_counter() - start
    lc.llama_batch_free(batch)
    lc.llama_free(c)
    return {"seconds": seconds, "ids": tokens}


def answer(request):
    if request["op"] == "batch":
        return batched(request)
    lc.llama_memory_clear(lc.llama_get_memory(ctx), True)
    start = time.perf_counter()
    forward(request["ids"])
    token = greedy()
    if request["op"] == "prefill":
        return {"seconds": time.perf_counter() - start, "ids": [token]}
    out = [token]
    start = time.perf_counter()
    for _ in range(request["tokens"]):
        forward([token])
        token = greedy()
        out.append(token)
    return {"seconds": time.perf_counter() - start, "ids": out}


print(json.dumps({
    "ready": True,
    "version": "llama-cpp-python " + lc.__version__,
    "info": lc.llama_print_system_info().decode().strip(),
}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
