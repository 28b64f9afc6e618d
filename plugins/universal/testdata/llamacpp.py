"""Writes llamacpp.json: llama.cpp on the CPU over the tiny GGUF checkpoints of the dense graph's rows.

  go run ./sdk/plugintest/tiny/cmd/tiny -family dense-gguf -out DIR
  python plugins/universal/testdata/llamacpp.py DIR > plugins/universal/testdata/llamacpp.json

For each file: the last row of logits after 7 and after 300 ids (float32, base64), with keys and values in float32 and without flash
attention.
"""
import base64
import ctypes
import json
import sys
from pathlib import Path

import llama_cpp as L
import numpy as np

LENGTHS = (7, 300)
QUIET = L.llama_log_callback(lambda *_: None)
L.llama_log_set(QUIET, ctypes.c_void_p(0))


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def golden(path):
    params = L.llama_model_default_params()
    params.use_extra_bufts = False
    model = L.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"llama.cpp refuses {path.name}"
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    rows = {}
    for n in LENGTHS:
        cp = L.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = 512
        cp.type_k = cp.type_v = 0  # float32
        cp.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED
        ctx = L.llama_init_from_model(model, cp)
        assert ctx, path.name
        batch = L.llama_batch_init(512, 0, 1)
        batch.n_tokens = n
        for i, id in enumerate(prompt(n, vocab)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = id, i, 1, 0
            batch.logits[i] = i == n - 1
        assert L.llama_decode(ctx, batch) == 0
        row = np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, n - 1), (vocab,)).astype("<f4")
        rows[str(n)] = base64.b64encode(row.tobytes()).decode()
        L.llama_batch_free(batch)
        L.llama_free(ctx)
    L.llama_model_free(model)
    return {"name": path.stem, "vocab": vocab, "last_rows": rows}


if __name__ == "__main__":
    print(json.dumps({
        "oracle": f"llama.cpp of llama-cpp-python {L.__version__}, cpu",
        "command": "python llamacpp.py DIR > llamacpp.json",
        "checkpoints": [golden(p) for p in sorted(Path(sys.argv[1]).glob("*.gguf"))],
    }, indent=1))
