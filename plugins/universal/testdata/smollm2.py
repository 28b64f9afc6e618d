"""Writes smollm2.json: what mlx-lm answers on SmolLM2's dequantized weights, on the CPU at float32.

  python smollm2.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.json

The prompt is rendered with the file's own template by jinja2 and encoded with tokenizers from the file's own vocabulary.
"""
import json
import sys
from pathlib import Path

import jinja2
import mlx.core as mx
import mlx_lm
from mlx_lm.generate import generate_step
from oracle import load_gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

QUESTIONS = ["What is the capital of France?", "Name three colours of the rainbow."]
GREEDY = 48


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
print(json.dumps({
    "oracle": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}, cpu, float32, on dequantized weights",
    "command": "python smollm2.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf > smollm2.json",
    "cases": cases,
}, indent=1))
