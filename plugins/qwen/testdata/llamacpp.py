"""Writes llamacpp.json: llama.cpp on the CPU over the tiny GGUF checkpoints of the qwen graphs.

  go run ./sdk/plugintest/tiny/cmd/tiny -family qwen-gguf -out DIR
  python plugins/qwen/testdata/llamacpp.py DIR > plugins/qwen/testdata/llamacpp.json

For each file: the last row of logits after 1, 7 and 300 ids (float32, base64) and 32 greedy ids after 7, with keys and values in
float32 and without flash attention. llama.cpp rounds activations where a matrix is quantized: such files run on the values that
gguf-py decodes, in float32.
"""
import base64
import ctypes
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import gguf
import llama_cpp as L
import numpy as np

LENGTHS, GREEDY = (1, 7, 300), 32
QUIET = L.llama_log_callback(lambda *_: None)
L.llama_log_set(QUIET, ctypes.c_void_p(0))


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def decoded(path, folder):
    """The file with its quantized tensors as float32."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(folder / path.name, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.alignment"):
            continue
        kind, of = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, of)
    for t in reader.tensors:
        floats = t.data if t.tensor_type == gguf.GGMLQuantizationType.F32 else gguf.quants.dequantize(t.data, t.tensor_type)
        writer.add_tensor(t.name, np.ascontiguousarray(floats, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / path.name


class Run:
    """A context that ids are put into in turn."""

    def __init__(self, model, vocab):
        cp = L.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = 512
        cp.type_k = cp.type_v = 0  # float32
        cp.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.ctx, self.vocab, self.at = L.llama_init_from_model(model, cp), vocab, 0
        assert self.ctx

    def row(self, ids):
        """The logits behind ids."""
        batch = L.llama_batch_init(512, 0, 1)
        batch.n_tokens = len(ids)
        for i, id in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = id, self.at + i, 1, 0
            batch.logits[i] = i == len(ids) - 1
        assert L.llama_decode(self.ctx, batch) == 0
        out = np.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, len(ids) - 1), (self.vocab,)).astype("<f4")
        L.llama_batch_free(batch)
        self.at += len(ids)
        return out


def golden(path, folder):
    params = L.llama_model_default_params()
    params.use_extra_bufts = False
    model = L.llama_model_load_from_file(str(decoded(path, folder)).encode(), params)
    assert model, f"llama.cpp refuses {path.name}"
    vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    rows, greedy = {}, []
    for n in LENGTHS:
        run = Run(model, vocab)
        row = run.row(prompt(n, vocab))
        rows[str(n)] = base64.b64encode(row.tobytes()).decode()
        while n == 7 and len(greedy) < GREEDY:
            greedy.append(int(row.argmax()))
            row = run.row(greedy[-1:])
        L.llama_free(run.ctx)
    L.llama_model_free(model)
    return {"name": path.name, "vocab": vocab, "last_rows": rows, "greedy": greedy}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({
            "oracle": f"llama.cpp of llama-cpp-python {L.__version__}, gguf {version('gguf')}, cpu",
            "command": "python llamacpp.py DIR > llamacpp.json",
            "checkpoints": [golden(p, Path(folder)) for p in sorted(Path(sys.argv[1]).glob("*.gguf"))],
        }, indent=1))
