"""Hugging Face `tokenizers` as a peer of the bench: times the encoding of one text, one thread.

    python tokenizers_encode.py TOKENIZER.json

Reads a line {"path": TEXT} for each run and answers {"seconds": s, "ids": n}. TOKENIZERS_PARALLELISM and
RAYON_NUM_THREADS are set by the bench. A text is cut at zero bytes into pieces, as the other side does.
"""
import json
import sys
import time

from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(sys.argv[1])
print(json.dumps({"ready": True}), flush=True)
for request in sys.stdin:
    with open(json.loads(request)["path"], encoding="utf-8") as f:
        pieces = f.read().split("\x00")
    start, n = time.perf_counter(), 0
    for piece in pieces:
        n += len(tokenizer.encode(piece, add_special_tokens=False).ids)
    print(json.dumps({"seconds": time.perf_counter() - start, "ids": n}), flush=True)
