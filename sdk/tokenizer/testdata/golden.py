"""Builds small tokenizers (BPE here, the others in kinds.py) and writes what Hugging Face `tokenizers` makes of nasty texts.

Run from sdk/tokenizer, with tokenizers 0.23.3 and sentencepiece 0.2.3 installed:

    python testdata/golden.py

It writes testdata/tokenizers/*.json, in which the vocabulary is trained on the fixed corpus below with fixed settings,
and testdata/golden.json with ids and decoded texts, those of corpus.py's random texts as one hash for every 20 of them.
"""

import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
import corpus as random_texts  # noqa: E402
import kinds  # noqa: E402
CORPUS = [
    "The quick brown fox jumps over the lazy dog. The dog didn't mind; it's used to it, they've said so.",
    "In 1999 and 2024, 12345 people in the town said: don't! I'll, we'd, you're, THEY'RE, I'M here.",
    "def main(args):\n    for i in range(100):\n        print(i, args[i])\n\n\treturn None\r\n",
    "Größe, naïve café, ångström, Łódź; Привет, мир! Как дела? Γειά σου Κόσμε.",
    "今日は世界。你好，世界！안녕하세요 세계 नमस्ते दुनिया สวัสดีชาวโลก",
    "😀 👩‍💻 👨‍👩‍👧‍👦 🇩🇪 ❤️ e\u0301 \u200b\u00a0\u2003 end",
    "http://example.org/path?x=1&y=2#frag   {\"key\": [1, 2, 3], \"b\": null}\n\n\n<html></html>",
] * 3
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(**kw):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **kw})


def bos(template="<|begin|> $A", ids=(("<|begin|>", None),)):
    return lambda t: processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=template, pair=template + " $B", special_tokens=[(n, t.token_to_id(n)) for n, _ in ids]),
    ])


def train(pre, normalizer=None, size=560, added=(), post=None, ignore_merges=False, decoder=None, **model):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges, **model))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoder or decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if decoder is None else []
    specials = ["<|begin|>", "<|end|>", "<|im_start|>"] + ([model["unk_token"]] if "unk_token" in model else []) + ([
        f"<0x{b:02X}>" for b in range(256)] if model.get("byte_fallback") else [])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, initial_alphabet=sorted(alphabet), show_progress=False))
    if model.get("byte_fallback"):
        # Byte tokens are vocabulary, not added tokens.
        d = json.loads(t.to_str())
        d["added_tokens"] = [a for a in d["added_tokens"] if not a["content"].startswith("<0x")]
        t = Tokenizer.from_str(json.dumps(d))
    for a in added:
        (t.add_special_tokens if a.special else t.add_tokens)([a])
    if post:
        t.post_processor = post(t)
    return t


FLAGS = [
    AddedToken("<mask>", lstrip=True, special=True),
    AddedToken("<r>", rstrip=True, special=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("Größe", normalized=True),
    AddedToken("<|x|>", normalized=False, special=True),
    AddedToken("<|x|>y", normalized=False),
    AddedToken("  ", normalized=False),
    AddedToken("<BIG>", normalized=True, special=True),
]
TOKENIZERS = {
    "gpt2": train(byte_level(use_regex=True), added=[AddedToken("<|endoftext|>", special=True)]),
    "gpt2-prefix": train(byte_level(use_regex=True, add_prefix_space=True)),
    "smollm": train(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)])),
    "llama3": train(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), ignore_merges=True, post=bos()),
    "qwen2": train(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), normalizer=normalizers.NFC()),
    "qwen35": train(pre_tokenizers.Sequence([split(QWEN35), byte_level()]), normalizer=normalizers.NFC()),
    "o200k": train(pre_tokenizers.Sequence([split(O200K), byte_level()]), post=bos("<|begin|> $A <|end|>", (("<|begin|>", None), ("<|end|>", None)))),
    "flags": train(pre_tokenizers.Sequence([split(GPT2, "removed", True), byte_level()]), added=FLAGS,
                   normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "behaviors": train(pre_tokenizers.Sequence([
        split(r"\p{P}", "merged_with_previous"), split(r"\d+", "contiguous"), pre_tokenizers.Split("a", "merged_with_next"),
        pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Digits(), byte_level()])),
    "spm": train(pre_tokenizers.Split(" ", "merged_with_previous"), normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                 byte_fallback=True, unk_token="<unk>", fuse_unk=True, size=700,
                 decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
    "unk": train(split(GPT2), unk_token="<unk>", fuse_unk=False, size=200, decoder=decoders.Fuse()),
    "unkfused": train(split(GPT2), unk_token="<unk>", fuse_unk=True, size=200, decoder=decoders.Sequence([decoders.Fuse(), decoders.Replace("th", "TH"), decoders.Strip("e", 1, 0)])),
    "nfkd": train(byte_level(use_regex=True), normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"\s+"), " ")])),
    "nfd": train(byte_level(use_regex=True), normalizer=normalizers.NFD()),
}

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", "Hello world", " Hello  world  ", "hello\n\nworld\n", "a\r\nb\r\n\r\n c\r", "\t\tx\t",
    "I'm you're HE'S THEY'LL we'Ve it'D 'tis don''t 'S'T 'ſ 'RE", "12345 1 22 333 4444 1,234.56 ٣٤٥ ½ Ⅷ ²³ 一二三",
    "x" * 200, "ab" * 300, " " * 57, "\n" * 33, "a" + " " * 31 + "b", " \n \n  \n x", "\u00a0\u2003 \u3000x\u200b y\u0085z\u2028w",
    "Größe GRÖSSE große Größe", "naïve cafe\u0301 e\u0301\u0327 \u1e9b\u0323 ﬁ ﬂ ① Å \u212b \u0130I", "Привет мир, Γειά σου, שלום עולם, مرحبا بالعالم",
    "今日は世界。你好，世界！안녕하세요 \u1112\u1161\u11ab ｶﾞ", "नमस्ते दुनिया สวัสดี ज़", "😀👩‍💻👨‍👩‍👧‍👦🇩🇪❤️ 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u0000\u0001\u001b[0m\u007f\u0080\ufeff\ufffd\ufffe", "\U0010ffff\U000e0100\U00010000", "\u1c89\ua7cb\U00010d50\U00010d40\U00011bf0\U00016d40\U0001e5f1\u0897",
    "a" + "\u0301" * 40 + "b" + "\u0323\u0301" * 20 + " e" + "\u0316\u0301" * 33,
    "<|im_start|>user\nhi<|end|>", "<|im_start|><|im_start|>x<|end|>y <|end|> z", "<|im_star<|im_start|>|>", "<|begin|>", "a<|begin|> b",
    "x <mask> y", "x   <mask>y", "<mask><mask>  <mask>", "<r>   a <r>\n\n<r>", "<r>  <mask> b", "word words sword word. wordword _word word_ 'word'",
    "größe GRÖSSE Größe groesse", "<|x|> <|x|>y <|x|>z", "a  b    c", "<|endoftext|>x", "ﬁ<|X|>", "a<BIG>b <big> ", "İstanbul ΑΣ Σ",
    "def f(x):\n\treturn {'a': [1, 2], \"b\": None}  # ok\n\n\n", "http://a.b/c?d=e&f=%20 /usr/bin/../lib ///\n//\n", "...!!!???---===>>> ,,, ~~~~ $$ ^^ ``",
    "the thethe eee e", "▁▁ ▁a <0x41> <0x0A>", "q̈ q̌", "𝐇𝐞𝐥𝐥𝐨 ａｂｃ", "\ud7b0\ud7cb \u1100\u1161\u11a8", "  leading", "trailing  ", "\u180e\u2060\u202f",
]
rng = random.Random(7)
POOL = list("abeth THE'sSdrlv019 \n\r\t.,!?-_<>|[]{}") + list("éßłΣσжяמש世界한글ह्ि้\u0301\u0327\u200d😀👩🇩²½Ⅷ٣\u00a0\u3000\u2028") + ["<|im_start|>", "<mask>", "<r>", "word", "  ", "the", "'re"]
for n in range(60):
    TEXTS.append("".join(rng.choice(POOL) for _ in range(rng.randint(1, 40))))
LONG = {"line": "the quick brown fox isn't 12345 ", "word": "abcdefghij", "spaces": " ", "cjk": "世界", "marks": "e\u0301"}


def sequences(t):
    """Ids no text gives: single tokens, broken UTF-8, ids without a token."""
    n = t.get_vocab_size()
    r = random.Random(n)
    return [[r.randrange(n + 5) for _ in range(r.randint(1, 12))] for _ in range(40)]


def main():
    TOKENIZERS.update(kinds.build(CORPUS))
    out = {"made_by": f"tokenizers {tokenizers.__version__}", "command": "python testdata/golden.py", "texts": TEXTS, "long": LONG, "tokenizers": {}}
    (here / "tokenizers").mkdir(exist_ok=True)
    for name, t in TOKENIZERS.items():
        t.save(str(here / "tokenizers" / f"{name}.json"), pretty=False)
        t = Tokenizer.from_file(str(here / "tokenizers" / f"{name}.json"))
        entry = {"encodings": [], "decodings": [], "long": {}}
        for text in TEXTS:
            plain = t.encode(text, add_special_tokens=False).ids
            e = {"ids": plain}
            special = t.encode(text, add_special_tokens=True).ids
            if special != plain:
                e["special"] = special
            back, skipped = t.decode(plain, skip_special_tokens=False), t.decode(plain, skip_special_tokens=True)
            if back != text:
                e["text"] = back
            if skipped != back:
                e["skipped"] = skipped
            entry["encodings"].append(e)
        for ids in sequences(t):
            entry["decodings"].append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids, skip_special_tokens=True)})
        for key, unit in LONG.items():
            ids = t.encode((unit * (100_000 // len(unit) + 1))[:100_000], add_special_tokens=False).ids
            h = 0
            for i in ids:
                h = (h * 1_000_003 + i + 1) % (1 << 61)
            entry["long"][key] = {"count": len(ids), "hash": str(h)}
        entry["random"] = random_texts.hashes(t, 2000)
        out["tokenizers"][name] = entry
    (here / "golden.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
