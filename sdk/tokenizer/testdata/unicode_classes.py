"""Prints what `tokenizers` thinks of every code point, as JSON; unicode_extra.go is its difference from Go's tables.

    python testdata/unicode_classes.py > classes.json

Keys L, N, M: ranges of code points in the class by a Regex pattern; numeric: what Digits splits; NFD, NFKD, Lower: what a
code point alone is normalized to, where that is another text.
"""

import json
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


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


digits = pre_tokenizers.Digits(individual_digits=True)
result = {name: ranges(matched(rf"\p{{{name}}}")) for name in ("L", "N", "M")}
result["numeric"] = ranges(c for c in CODE_POINTS if len(digits.pre_tokenize_str(f"a{chr(c)}a")) == 3)
for name, n in (("NFD", normalizers.NFD()), ("NFKD", normalizers.NFKD()), ("Lower", normalizers.Lowercase())):
    mapped = ((c, n.normalize_str(chr(c))) for c in CODE_POINTS)
    result[name] = {c: [ord(x) for x in s] for c, s in mapped if s != chr(c)}
json.dump(result, sys.stdout)
