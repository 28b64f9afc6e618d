"""Tokenizers of every model kind, normalizer, pre-tokenizer, post-processor and decoder, for golden.py.

Each is trained on golden.py's corpus with fixed settings. The Unigram models' charsmap is SentencePiece's own compilation of
RULES; kinds.py MODEL.json instead writes a Unigram tokenizer with SentencePiece's whole nmt_nfkc table.
"""

import base64
import io
import json
import pathlib
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

RULES = [("ﬁ", "fi"), ("ﬂ", "fl"), ("①", "1"), ("\u212b", "\u00c5"), ("e\u0301", "é"), ("a\u0301", "á"), ("E", "e"), ("\u200b", ""), ("\u00a0", " "), ("\u3000", " "),
         ("\t", " "), ("\n", " "), ("\r", ""), ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("ａ", "a"), ("ｂ", "b"), ("ｃ", "c"), ("½", "1/2"), ("…", "..."), ("♥", "<3"), ("\u1112\u1161\u11ab", "한"),
         ("\ufeff", ""), ("Ⅷ", "VIII"), ("ß", "ss"), ("ſ", "s"), ("\u212a", "K"), ("👩", "W")]


def charsmap(name):
    with tempfile.TemporaryDirectory() as tmp:
        text = pathlib.Path(tmp, "text")
        text.write_text("\n".join(f"line {i} of some text to train on {i * i}" for i in range(200)))
        rule = {"normalization_rule_name": name}
        if name == "":
            path = pathlib.Path(tmp, "rules.tsv")
            path.write_text("".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in RULES))
            rule = {"normalization_rule_tsv": str(path)}
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_writer=out, vocab_size=40, minloglevel=2, **rule)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(out.getvalue())
        return proto.normalizer_spec.precompiled_charsmap


def precompiled(charsmap):
    return normalizers.Precompiled(charsmap)


def trained(corpus, model, trainer, normalizer=None, pre=None, post=None, decoder=None, added=()):
    t = Tokenizer(model)
    if normalizer is not None:
        t.normalizer = normalizer
    if pre is not None:
        t.pre_tokenizer = pre
    t.train_from_iterator(corpus, trainer)
    for a in added:
        (t.add_special_tokens if a.special else t.add_tokens)([a])
    if post is not None:
        t.post_processor = post(t)
    if decoder is not None:
        t.decoder = decoder
    return t


SPECIALS = ["<unk>", "<s>", "</s>", "<pad>"]
ADDED = [AddedToken("<mask>", lstrip=True, normalized=False, special=True), AddedToken("Word", single_word=True, normalized=True), AddedToken("<r>", rstrip=True, normalized=False)]


def edited(t, **sections):
    """Changes what the bindings cannot set."""
    d = json.loads(t.to_str())
    for k, v in sections.items():
        d[k].update(v)
    return Tokenizer.from_str(json.dumps(d))


def with_bytes(t):
    """Gives a Unigram model byte tokens and byte_fallback."""
    d = json.loads(t.to_str())
    d["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    d["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(d))


def around(t, single="<s> $A </s>"):
    return processors.TemplateProcessing(single=single, pair="<s> $A </s> $B </s>", special_tokens=[(n, t.token_to_id(n)) for n in ("<s>", "</s>")])


def pair(kind):
    def make(t):
        return kind(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return make


def unigram(size=420):
    return trainers.UnigramTrainer(vocab_size=size, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False, max_piece_length=12)


def bpe(size=420, **kw):
    return trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False, **kw)


def build(corpus):
    N, P, D = normalizers, pre_tokenizers, decoders
    small = precompiled(charsmap(""))
    words = trainers.WordPieceTrainer(vocab_size=420, special_tokens=SPECIALS, show_progress=False)
    level = trainers.WordLevelTrainer(vocab_size=300, special_tokens=SPECIALS, show_progress=False)
    unk = {"unk_token": "<unk>"}
    out = {
        "unigram": trained(corpus, models.Unigram(), unigram(), small, P.Metaspace(), around, D.Metaspace(), ADDED),
        "unigram-first": trained(corpus, models.Unigram(), unigram(), N.Sequence([small, N.Strip(False, True), N.Replace(Regex(" {2,}"), "▁")]),
                                 P.Metaspace(prepend_scheme="first"), around, D.Metaspace(prepend_scheme="first"), ADDED),
        "unigram-bytes": with_bytes(trained(corpus, models.Unigram(), unigram(300), N.Sequence([N.Nmt(), N.NFKC(), N.Prepend("▁"), N.Replace(" ", "▁")]), None, around,
                                            D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]))),
        "unigram-scripts": trained(corpus, models.Unigram(), unigram(), small, P.Sequence([P.UnicodeScripts(), P.Metaspace(prepend_scheme="never")]), None, D.Metaspace(prepend_scheme="never")),
        "bert": trained(corpus, models.WordPiece(**unk), words, N.BertNormalizer(), P.BertPreTokenizer(), pair(processors.BertProcessing), D.WordPiece(), ADDED),
        "bert-cased": trained(corpus, models.WordPiece(max_input_chars_per_word=20, **unk), words, N.BertNormalizer(lowercase=False, strip_accents=None, handle_chinese_chars=False),
                              P.BertPreTokenizer(), pair(processors.BertProcessing), D.WordPiece(cleanup=False)),
        "bert-accents": trained(corpus, models.WordPiece(**unk), words, N.BertNormalizer(clean_text=False, lowercase=False, strip_accents=True), P.Whitespace(), around,
                                D.Sequence([D.Fuse(), D.WordPiece()])),
        "level": trained(corpus, models.WordLevel(**unk), level, None, P.Whitespace(), around),
        "level-split": trained(corpus, models.WordLevel(**unk), level, N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip()]),
                               P.Sequence([P.WhitespaceSplit(), P.Punctuation("contiguous")]), None, D.Fuse()),
        "ctc": trained(["|".join(s) for s in corpus], models.WordLevel(**unk), level, None, P.CharDelimiterSplit("|"), None, D.CTC(pad_token="<pad>", word_delimiter_token=" ")),
        "clip": trained(corpus, models.BPE(end_of_word_suffix="</w>", **unk), bpe(end_of_word_suffix="</w>"), N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
                        P.Sequence([P.Split(Regex(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", True), P.ByteLevel(add_prefix_space=False, use_regex=False)]),
                        pair(processors.RobertaProcessing), D.BPEDecoder(), ADDED),
        "inside": trained(corpus, models.BPE(continuing_subword_prefix="##", fuse_unk=True, **unk), bpe(continuing_subword_prefix="##"), None, P.Whitespace(), None, D.WordPiece("##", True)),
        "roberta": trained(corpus, models.BPE(), bpe(560, initial_alphabet=sorted(P.ByteLevel.alphabet())), None, P.ByteLevel(add_prefix_space=True), pair(processors.RobertaProcessing), D.ByteLevel(), ADDED),
        "meta-never": trained(corpus, models.BPE(byte_fallback=False, **unk), bpe(), None, P.Metaspace(prepend_scheme="never", split=False), None, D.Metaspace(prepend_scheme="never"), ADDED),
        "meta-first": trained(corpus, models.BPE(**unk), bpe(), None, P.Sequence([P.Split(Regex(r"[!?]"), "merged_with_previous"), P.Metaspace(prepend_scheme="first")]), None, D.Metaspace(prepend_scheme="first"), ADDED),
        "bytes-normalized": trained(corpus, models.BPE(), bpe(560, initial_alphabet=sorted(P.ByteLevel.alphabet())), N.Sequence([N.NFC(), N.ByteLevel()]), P.Split("Ġ", "merged_with_next"), None, D.ByteLevel()),
        "fixed": trained(corpus, models.BPE(**unk), bpe(), None, P.Sequence([P.FixedLength(4), P.Punctuation("merged_with_previous")]), None, D.Sequence([D.Strip("e", 1, 0), D.Replace("o", "0")])),
        "cl100k": trained(corpus, models.BPE(), bpe(560, initial_alphabet=sorted(P.ByteLevel.alphabet())), None, P.Sequence([
            P.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"), "isolated"),
            P.ByteLevel(add_prefix_space=False, use_regex=False)]), None, D.ByteLevel()),
        "deepseek": trained(corpus, models.BPE(), bpe(560, initial_alphabet=sorted(P.ByteLevel.alphabet())), None, P.Sequence([
            P.Split(Regex(r"\p{N}{1,3}"), "isolated"), P.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
            P.Split(Regex(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""), "isolated"),
            P.ByteLevel(add_prefix_space=False, use_regex=False)]), None, D.ByteLevel()),
        "word-class": trained(corpus, models.BPE(**unk), bpe(), None, P.Split(Regex(r"\w+|\h+(?=-)|[^\w\s]+"), "removed", True), None, D.Sequence([D.Fuse(), D.ByteFallback()])),
    }
    return out


if __name__ == "__main__":
    full = precompiled(charsmap("nmt_nfkc"))
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import golden
    trained(golden.CORPUS, models.Unigram(), unigram(), full, pre_tokenizers.Metaspace(), around, decoders.Metaspace()).save(sys.argv[1], pretty=False)
