#!/usr/bin/env python3
"""The codes of cached rows in numpy, as docs/kv.md defines them: float32, one rounding an operation, in the stated order.

  reference.py FOLDER     (sdk/kv; writes testdata/codes.json, which TestCodesAreThoseOfTheReference reads)

Made with numpy 2; any numpy with IEEE float32 writes the same file.
"""
import base64
import hashlib
import json
import re
import sys

import numpy as np

F = np.float32


def tables(folder):
    """Levels and thresholds by bits, from the generated Go file."""
    text = open(f"{folder}/turbo_levels.go").read()
    out = {}
    for bits, levels, thresholds in re.findall(r"(\d): \{\s*levels: \[\]float32\{(.*?)\},\s*thresholds: \[\]float32\{(.*?)\},", text, re.S):
        out[int(bits)] = tuple(np.array([F(v) for v in re.findall(r"[-+.e\d]+", t)], F) for t in (levels, thresholds))
    return out


def stream(codes, bits):
    """Codes [n] as little-endian words, the first in the lowest bits."""
    n = (len(codes) * bits + 31) // 32
    whole = sum(int(c) << (i * bits) for i, c in enumerate(codes))
    return [(whole >> (32 * i)) & 0xFFFFFFFF for i in range(n)]


def codes_of(words, bits, n):
    whole = sum(int(w) << (32 * i) for i, w in enumerate(words))
    return np.array([(whole >> (i * bits)) & ((1 << bits) - 1) for i in range(n)])


def affine(x, bits, group):
    most, heads, codes = F((1 << bits) - 1), [], []
    for g in x.reshape(-1, group):
        scale = np.float16(min((g.max() - g.min()) / most, F(65504)))
        bias = np.float16(np.clip(g.min(), F(-65504), F(65504)))
        s, b = F(scale), F(bias)
        codes += list(np.clip(np.rint((g - b) / s), 0, most).astype(int)) if s > 0 else [0] * group
        heads.append(int(scale.view(np.uint16)) | int(bias.view(np.uint16)) << 16)
    return heads + stream(codes, bits)


def affine_back(words, bits, group, dim):
    groups = dim // group
    heads = np.array(words[:groups], np.uint32).view(np.float16).astype(F).reshape(groups, 2)
    codes = codes_of(words[groups:], bits, dim).astype(F).reshape(groups, group)
    return (codes * heads[:, :1] + heads[:, 1:]).reshape(dim)


def signs(dim):
    out, mask = np.ones(dim, F), (1 << 64) - 1
    for i in range(dim):
        z = (i + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        if (z ^ z >> 31) >> 63:
            out[i] = F(-1)
    return out


def hadamard(x):
    n, h = len(x), 1
    while h < n:
        p = x.reshape(-1, 2, h)
        x = np.stack([p[:, 0] + p[:, 1], p[:, 0] - p[:, 1]], 1).reshape(n)
        h *= 2
    return x


def root(x):
    x = x * x
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2:]
    return np.sqrt(x[0])


def turbo(x, bits, table):
    levels, thresholds = table[bits]
    dim = len(x)
    heads, codes = [], []
    for v in (x * signs(dim)).reshape(-1, dim & -dim):
        norm = root(v)
        u = hadamard(v) / norm if norm > 0 else np.zeros_like(v)
        c = np.searchsorted(thresholds, u, side="left")  # thresholds below u
        heads.append(int((norm / root(levels[c]) if norm > 0 else F(0)).view(np.uint32)))
        codes += list(c)
    return heads + stream(codes, bits)


def turbo_back(words, bits, dim, table):
    block = dim & -dim
    blocks = dim // block
    scales = np.array(words[:blocks], np.uint32).view(F)
    rows = table[bits][0][codes_of(words[blocks:], bits, dim)].reshape(blocks, block) * scales[:, None]
    rows = np.stack([hadamard(r) for r in rows]) * (F(1) / np.sqrt(F(block)))
    return rows.reshape(dim) * signs(dim)


def inputs(rows, dim):
    """Rows that a test draws too: a linear congruential generator, exact in float32, and some of special size."""
    u, out = 12345, np.empty((rows, dim), F)
    for i in range(rows * dim):
        u = (u * 1664525 + 1013904223) & 0xFFFFFFFF
        out.flat[i] = F((u >> 8) - (1 << 23)) / F(1 << 21)
    out[0] = 0
    out[1] = F(2.5)
    out[2] *= F(2.0**-20)
    out[3] *= F(2.0**15)
    out[4, 1:] *= F(2.0**-10)
    return out


def main(folder):
    table, out = tables(folder), []
    with np.errstate(all="ignore"):
        for dim in (32, 64, 96, 128):
            x = inputs(8, dim)
            cases = [("affine", b, g) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64) if dim % g == 0] + [("turbo", b, 0) for b in (2, 3, 4, 5, 8)]
            for kind, bits, group in cases:
                words = [affine(r, bits, group) if kind == "affine" else turbo(r, bits, table) for r in x]
                back = [affine_back(w, bits, group, dim) if kind == "affine" else turbo_back(w, bits, dim, table) for w in words]
                out.append({
                    "kind": kind, "bits": bits, "group": group, "dim": dim,
                    "words": base64.b64encode(np.array(words, "<u4").tobytes()).decode(),
                    "back": hashlib.sha256(np.array(back, "<f4").tobytes()).hexdigest(),
                })
    with open(f"{folder}/testdata/codes.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
