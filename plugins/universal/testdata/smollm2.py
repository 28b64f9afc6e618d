"""Writes smollm2.json: what mlx-lm answers on SmolLM2's dequantized weights, on the CPU at float32, and llama.cpp's perplexity on the same
file.

  python smollm2.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.json

The prompt is rendered with the file's own template by jinja2 and encoded with tokenizers from the file's own vocabulary.
"""
import json
import math
import sys
from pathlib import Path

import jinja2
import llama_cpp
import mlx.core as mx
import mlx_lm
import numpy as np
from mlx_lm.generate import generate_step
from oracle import load_gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

QUESTIONS = ["What is the capital of France?", "Name three colours of the rainbow."]
GREEDY = 48
TEXT = (
    "A lighthouse keeper counts the ships that pass in the night. Some of them answer his lamp, others do not, and in the morning he "
    "writes their number into a book that nobody has asked for. When the company sent an inspector, he read the book from the first "
    "page to the last, closed it, and asked for a second copy. It was winter then, and the sea was quiet for a week."
)
PLAIN = llama_cpp.llama_cpp.llama_model_default_params


def without_extra_buffers():
    """llama.cpp's AMX path ends the process on some machines."""
    params = PLAIN()
    params.use_extra_bufts = False
    return params


llama_cpp.llama_cpp.llama_model_default_params = without_extra_buffers


def perplexity(logits, ids):
    logits = logits.astype(np.float64)
    picked = logits[np.arange(len(ids) - 1), ids[1:]]
    top = logits[:-1].max(-1)
    return math.exp(-np.mean(picked - top - np.log(np.exp(logits[:-1] - top[:, None]).sum(-1))))


def tokenizer(meta):
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"].tolist()
    merges = [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True) for s, k in zip(tokens, kinds) if k == 3])
    return t


path = sys.argv[1]
_, meta = mx.load(path, return_metadata=True)
text, eos = tokenizer(meta), int(meta["tokenizer.ggml.eos_token_id"].item())
template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(meta["tokenizer.chat_template"])
model, _ = load_gguf(Path(path))
cases = []
for question in QUESTIONS:
    prompt = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
    ids = text.encode(prompt, add_special_tokens=False).ids
    out = []
    for token, _ in generate_step(mx.array(ids), model, max_tokens=GREEDY):
        if int(token) == eos:
            break
        out.append(int(token))
    cases.append({"question": question, "ids": ids, "greedy": out, "text": text.decode(out)})
llama = llama_cpp.Llama(path, n_ctx=512, logits_all=True, verbose=False, n_threads=2)
ids = text.encode(TEXT, add_special_tokens=False).ids
llama.eval(ids)
print(json.dumps({
    "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, cpu, float32, on dequantized weights; llama-cpp-python {llama_cpp.__version__}",
    "command": "python smollm2.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.json",
    "cases": cases, "text": TEXT, "text_ids": ids, "perplexity": {
        "llama.cpp": perplexity(np.array(llama.scores[: len(ids)]), ids), "mlx-lm": perplexity(np.array(model(mx.array([ids]))[0]), ids),
    },
}, indent=1))
