#!/usr/bin/env python3
"""Writes the rows of the table of docs/kv.md: what each KV cache scheme costs SmolLM2 in perplexity, memory and speed.

  table.py CLADE MODEL [--schemes S,S] [--perplexity] [--decode TOKENS,TOKENS] [--repeats N] [--out FILE] [--seconds N]

Perplexity is of prose.txt beside it, whose tokens are scored in rows of 1024; decode is the median of 32 tokens behind a prompt of so
many, which is computed once: the repeats take it from the prefix cache. Quiet machines only: nothing else should run beside --decode.

With --out a figure that FILE has is not taken again, and each is written as soon as it is there; --seconds begins none when so many
have gone by (exit status 3: call again for the rest).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

SCHEMES = "native,bf16,8,affine:8g32,4,affine:4g32,turbo,turbo:k4v4,turbo:k4v3"
KEPT = str(2 << 30)  # bytes of a prefix cache that has room for every prompt


def clade(args, *more):
    done = subprocess.run([args.clade, *more, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def figures(args, scheme):
    """What is measured of a scheme: names, and how each is."""
    text = str(pathlib.Path(__file__).parent / "prose.txt")
    yield "bytes_per_token", lambda: clade(args, "show", args.model, "--kv", scheme)["plan"]["bytes_per_token"]
    if args.perplexity:
        yield "score", lambda: clade(args, "score", args.model, "--kv", scheme, "--text", text, "--sequence-length", "1024")
    for n in filter(None, args.decode.split(",")):
        yield f"bench {n}", lambda n=n: clade(
            args, "bench", args.model, "--kv", scheme, "--prefix-cache", KEPT, "--rows", "1", "--prefill", n, "--decode", "32",
            "--repeats", str(args.repeats))


def write(path, rows):
    """Replaces FILE at once: an interrupted run leaves what was there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(json.dumps(r) + "\n" for r in rows.values()))
    os.replace(temporary, path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("clade")
    p.add_argument("model")
    p.add_argument("--schemes", default=SCHEMES)
    p.add_argument("--perplexity", action="store_true")
    p.add_argument("--decode", default="")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=float("inf"))
    args = p.parse_args()
    rows, began = {}, time.monotonic()
    if args.out and args.out.exists():
        rows = {r["kv"]: r for r in map(json.loads, args.out.read_text().splitlines())}
    for scheme in args.schemes.split(","):
        row = rows.setdefault(scheme, {"kv": scheme})
        for name, take in figures(args, scheme):
            if name in row:
                continue
            if time.monotonic() - began > args.seconds:
                sys.exit(3)
            row[name] = take()
            if args.out:
                write(args.out, rows)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
