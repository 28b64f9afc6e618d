#!/usr/bin/env python3
"""Writes the table of docs/kv.md: what each KV cache scheme costs SmolLM2 in perplexity, memory and speed.

  table.py CLADE MODEL [--schemes S,S] [--perplexity] [--decode TOKENS,TOKENS] [--repeats N]

Perplexity is of prose.txt beside it, whose tokens are scored in rows of 1024; decode is the median of 32 tokens behind a prompt of so
many. Quiet machines only: nothing else should run beside --decode.
"""
import argparse
import json
import pathlib
import subprocess

SCHEMES = "native,bf16,8,affine:8g32,4,affine:4g32,turbo,turbo:k4v4,turbo:k4v3"


def clade(args, *more):
    done = subprocess.run([args.clade, *more, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("clade")
    p.add_argument("model")
    p.add_argument("--schemes", default=SCHEMES)
    p.add_argument("--perplexity", action="store_true")
    p.add_argument("--decode", default="")
    p.add_argument("--repeats", type=int, default=1)
    args = p.parse_args()
    text = pathlib.Path(__file__).parent / "prose.txt"
    for scheme in args.schemes.split(","):
        row = {"kv": scheme}
        shown = clade(args, "show", args.model, "--kv", scheme)
        row["bytes_per_token"] = shown["plan"]["bytes_per_token"]
        if args.perplexity:
            row["score"] = clade(args, "score", args.model, "--kv", scheme, "--text", str(text), "--sequence-length", "1024")
        for n in filter(None, args.decode.split(",")):
            row[f"bench {n}"] = clade(args, "bench", args.model, "--kv", scheme, "--prefill", n, "--decode", "32", "--repeats", str(args.repeats))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
