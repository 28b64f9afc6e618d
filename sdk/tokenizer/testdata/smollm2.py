"""Encodes random texts with the vocabulary of a GGUF file by Hugging Face `tokenizers`; prints JSON to stdout.

    python testdata/smollm2.py MODEL.gguf

The metadata of SmolLM2 (tokenizer.ggml.pre "smollm") becomes a tokenizer of `tokenizers`: Digits(individual) and
ByteLevel before BPE, control tokens as special added tokens. smollm2_test.go compares ids and texts with ours.
"""

import json
import random
import struct
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def metadata(path):
    f = open(path, "rb")

    def read(fmt):
        return struct.unpack("<" + fmt, f.read(struct.calcsize("<" + fmt)))[0]

    def value(kind):
        if kind == 8:
            return f.read(read("Q")).decode()
        if kind == 9:
            element, n = read("I"), read("Q")
            return [value(element) for _ in range(n)]
        return read(FORMATS[kind])

    assert f.read(4) == b"GGUF"
    read("I"), read("Q")
    pairs = {}
    for _ in range(read("Q")):
        key = f.read(read("Q")).decode()
        pairs[key] = value(read("I"))
    return pairs


kv = metadata(sys.argv[1])
assert kv["tokenizer.ggml.pre"] == "smollm"
vocab = kv["tokenizer.ggml.tokens"]
t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(vocab)}, merges=[tuple(m.split(" ")) for m in kv["tokenizer.ggml.merges"]]))
t.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
t.decoder = decoders.ByteLevel()
t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, kind in zip(vocab, kv["tokenizer.ggml.token_type"]) if kind == 3])

rng = random.Random(1)
BLOCKS = [(1, 0x250), (0x370, 0x600), (0x900, 0x980), (0x3040, 0x3100), (0x4E00, 0x4F00), (0x1F600, 0x1F640)]
POOL = [chr(c) for lo, hi in BLOCKS for c in range(lo, hi)] + list("\u200d\ufe0f\u0301\u2028\u3000\u00a0")
WORDS = ("the of and model Paris isn't DON'T I'll we'Ve 2024 3.14 def return \n\n \t <|im_start|> <|im_end|> <|endoftext|> "
         "http:// https language international ization 😀 你好").split(" ")
texts = []
for i in range(5000):
    n = rng.randint(0, 60)
    if i % 5 < 2:
        texts.append("".join(rng.choice(POOL) for _ in range(n)))
    elif i % 5 < 4:
        texts.append("".join(rng.choice(WORDS) + rng.choice([" ", "", "  ", "\n", "'s ", "\r\n"]) for _ in range(n)))
    else:
        text = "".join(chr(rng.choice([rng.randrange(0x20, 0x7F), rng.randrange(0x110000)])) for _ in range(n))
        texts.append(text.encode("utf-8", "replace").decode())
encoded = [t.encode(s).ids for s in texts]
json.dump([{"text": s, "ids": ids, "back": t.decode(ids, skip_special_tokens=False)} for s, ids in zip(texts, encoded)], sys.stdout)
