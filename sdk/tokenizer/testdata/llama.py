"""Writes small GGUF files of the tokenizer models that Hugging Face has no such files for, and what llama.cpp makes of texts.

Run from sdk/tokenizer, with gguf 0.19.0 and llama-cpp-python 0.3.36 installed:

    python testdata/llama.py              writes testdata/llama/*.gguf and testdata/llama.json
    python testdata/llama.py FILE COUNT   ids of corpus.py's texts with FILE, a JSON line each: [plain, with what goes around]

The vocabularies are those of testdata/tokenizers, spelled as converters to GGUF spell them. In llama.json stands, for each of
corpus.py's first 2,000 texts, the CRC-16 of its ids.
"""

import base64
import binascii
import json
import os
import pathlib
import sys

import gguf

import corpus

here = pathlib.Path(__file__).parent
COUNT = 2000
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def tokenizer(name):
    return json.loads((here / f"tokenizers/{name}.json").read_text())


def specials(file, unk=0):
    kinds = {a["id"]: CONTROL if a["special"] else USER_DEFINED for a in file["added_tokens"]}
    return {**kinds, unk: UNKNOWN}


def wpm(name, **flags):
    file = tokenizer(name)
    vocab = file["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    kinds = [specials(file).get(i, NORMAL) for i in range(len(tokens))]
    spelled = [s if k != NORMAL else s[2:] if s.startswith("##") else "▁" + s for s, k in zip(tokens, kinds)]
    ids = {"bos": 1, "eos": 2, "seperator": 2, "unknown": 0, "padding": 3, "cls": 1}
    return dict(model="bert", tokens=spelled, types=kinds, ids=ids, flags=flags)


def ugm(name, **flags):
    file = tokenizer(name)
    pieces = file["model"]["vocab"]
    kinds = [specials(file).get(i, NORMAL) for i in range(len(pieces))]
    kinds[12], kinds[30] = UNUSED, USER_DEFINED
    normalizer = file["normalizer"]
    charsmap = next((n["precompiled_charsmap"] for n in normalizer.get("normalizers", [normalizer]) if n["type"] == "Precompiled"), None)
    return dict(model="t5", tokens=[s for s, _ in pieces], scores=[s for _, s in pieces], types=kinds, flags=flags,
                charsmap=charsmap and base64.b64decode(charsmap), ids={"bos": 1, "eos": 2, "unknown": 0, "padding": 3})


def whitespace(**flags):
    file = tokenizer("spm")
    vocab = file["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    kinds = [BYTE if s.startswith("<0x") else specials(file, 3).get(i, NORMAL) for i, s in enumerate(tokens)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    return dict(model="whitespace", pre="whitespace", tokens=tokens, types=kinds, merges=merges, flags=flags, ids={"bos": 0, "eos": 1, "unknown": 3})


MODELS = {
    "bert": wpm("bert", add_bos_token=False),
    "bert-cased": wpm("bert-cased", **{"normalizer.lowercase": False}),
    "t5": ugm("unigram"),
    "t5-merged": ugm("unigram-first", add_space_prefix=True, remove_extra_whitespaces=True),
    "t5-plain": ugm("unigram-bytes", add_space_prefix=False, remove_extra_whitespaces=False, add_bos_token=True, add_eos_token=False),
    "whitespace": whitespace(),
    "whitespace-lower": whitespace(**{"normalizer.lowercase": True}),
}


def write(path, model, tokens, types, ids, flags, scores=None, merges=None, charsmap=None, pre="default"):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_scores(scores or [0.0] * len(tokens))
    if merges is not None:
        w.add_token_merges(merges)
    if charsmap:
        w.add_precompiled_charsmap(charsmap)
    for name, i in ids.items():
        w.add_uint32(f"tokenizer.ggml.{name}_token_id", i)
    for name, value in flags.items():
        w.add_bool(f"tokenizer.ggml.{name}", value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def results(path, count):
    import llama_cpp
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for i in range(count):
        text = corpus.text(i).encode()
        yield [model.tokenize(text, add_bos=special, special=True) for special in (False, True)]


def crc(pair):
    return f"{binascii.crc_hqx(json.dumps(pair, separators=(',', ':')).encode(), 0):04x}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for pair in results(sys.argv[1], int(sys.argv[2])):
            print(json.dumps(pair))
    else:
        os.makedirs(here / "llama", exist_ok=True)
        golden = {}
        for name, model in MODELS.items():
            path = here / f"llama/{name}.gguf"
            write(path, **model)
            golden[name] = "".join(map(crc, results(path, COUNT)))
        (here / "llama.json").write_text(json.dumps(golden, indent=0) + "\n")
