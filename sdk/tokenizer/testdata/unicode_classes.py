"""Writes what `tokenizers` thinks of every code point: unicode.bin, which the package embeds, and more as JSON to stdout.

    python testdata/unicode_classes.py [unicode.bin]

unicode.bin: two run-length lists over all code points from 0 to U+10FFFF, each a list of uvarint pairs (length, value). The
first list's values are the bits of BITS, the second's the script that the UnicodeScripts pre-tokenizer sees (0: any).
JSON: what a code point alone is normalized to (NFD, NFKD, Lower), where that is another text.
"""

import json
import pathlib
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matched(pattern):
    found, split = set(), pre_tokenizers.Split(Regex(pattern), "removed")
    for i in range(0, len(CODE_POINTS), 4096):
        chunk = CODE_POINTS[i:i + 4096]
        kept = "".join(piece for piece, _ in split.pre_tokenize_str("".join(map(chr, chunk))))
        found |= set(chunk) - set(map(ord, kept))
    return found


def removed(normalizer, before=""):
    return {c for c in CODE_POINTS if normalizer.normalize_str(before + chr(c)) == before}


def isolated(pre):
    return {c for c in CODE_POINTS if len(pre.pre_tokenize_str(f"a{chr(c)}a")) == 3}


def bert(**kw):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **kw})


def word():
    pre = pre_tokenizers.Whitespace()
    return {c for c in CODE_POINTS if [s for s, _ in pre.pre_tokenize_str("a" + chr(c))] == ["a" + chr(c)]}


cased = matched(r"[\p{Lm}\p{Lo}\p{M}]")
BITS = [  # in the order of class.go
    matched(r"\p{L}"), matched(r"\p{N}"), matched(r"\p{M}"), matched(r"\s"),
    isolated(pre_tokenizers.Digits(individual_digits=True)), word(),
    cased | matched(r"[\p{Lu}\p{Lt}]"), cased | matched(r"\p{Ll}"),
    isolated(pre_tokenizers.Punctuation()), removed(bert(strip_accents=True), "a"), removed(normalizers.StripAccents(), "a"),
    removed(bert(clean_text=True)),
]


def scripts():
    pre, representatives, at = pre_tokenizers.UnicodeScripts(), [], {}
    last = 0

    def same(script, c):
        return len(pre.pre_tokenize_str(representatives[script - 1] + chr(c))) == 1

    for c in CODE_POINTS:
        if not pre.pre_tokenize_str(chr(c)):
            at[c] = 0
            continue
        if not (last and same(last, c)):
            last = next((s + 1 for s in range(len(representatives)) if same(s + 1, c)), 0)
            if not last:
                representatives.append(chr(c))
                last = len(representatives)
        at[c] = last
    return at


def uvarint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def runs(value):
    out, start = b"", 0
    for c in range(1, 0x110001):
        if c == 0x110000 or value(c) != value(start):
            out += uvarint(c - start) + uvarint(value(start))
            start = c
    return out


bits = dict.fromkeys(range(0x110000), 0)
for i, points in enumerate(BITS):
    for c in points:
        bits[c] |= 1 << i
by_script = scripts()
path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "unicode.bin")
path.write_bytes(runs(bits.__getitem__) + runs(lambda c: by_script.get(c, 0)))
result = {}
for name, n in (("NFD", normalizers.NFD()), ("NFKD", normalizers.NFKD()), ("Lower", normalizers.Lowercase())):
    mapped = ((c, n.normalize_str(chr(c))) for c in CODE_POINTS)
    result[name] = {c: [ord(x) for x in s] for c, s in mapped if s != chr(c)}
json.dump(result, sys.stdout)
