"""Random texts, the same here and in corpus_test.go: corpus.json's pools mixed by a fixed generator of numbers.

    python testdata/corpus.py TOKENIZER.json COUNT

prints, a line for each of COUNT texts, {"ids", "special" if other, "back", "skipped" if other} as `tokenizers` gives them.
"""

import hashlib
import json
import pathlib
import sys

POOLS = json.loads((pathlib.Path(__file__).parent / "corpus.json").read_text())["pools"]
SPACE = next(p for p in POOLS if p["name"] == "space")
MASK = (1 << 64) - 1
CHUNK = 20


class Numbers:
    def __init__(self, seed):
        self.state = seed * 0x9E3779B97F4A7C15 & MASK

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % n


def pick(r, pool):
    if "items" in pool:
        return pool["items"][r.below(len(pool["items"]))].encode()
    if "hex" in pool:
        return bytes.fromhex(pool["hex"][r.below(len(pool["hex"]))])
    lo, hi = pool["ranges"][r.below(len(pool["ranges"]))]
    return chr(lo + r.below(hi - lo + 1)).encode()


def text(i):
    r = Numbers(i + 1)
    pools = [POOLS[r.below(len(POOLS))] for _ in range(1 + r.below(3))]
    out = b""
    for _ in range(r.below(48)):
        out += pick(r, SPACE if r.below(6) == 0 else pools[r.below(len(pools))])
    return out.decode("utf-8", "replace")


def result(t, i):
    s = text(i)
    plain = t.encode(s, add_special_tokens=False).ids
    return {"ids": plain, "special": t.encode(s, add_special_tokens=True).ids,
            "back": t.decode(plain, skip_special_tokens=False), "skipped": t.decode(plain, skip_special_tokens=True)}


def line(r):
    return " ".join(map(str, r["ids"])) + "\n" + " ".join(map(str, r["special"])) + "\n" + r["back"] + "\n" + r["skipped"] + "\n"


def hashes(t, count):
    """One hash, of 8 hex digits, for every CHUNK texts."""
    out = []
    for start in range(0, count, CHUNK):
        h = hashlib.sha256("".join(line(result(t, i)) for i in range(start, start + CHUNK)).encode())
        out.append(h.hexdigest()[:8])
    return " ".join(out)


if __name__ == "__main__":
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(sys.argv[1])
    for n in range(int(sys.argv[2])):
        print(json.dumps(result(tokenizer, n)))
