"""Writes source.json: a small encoder-decoder in numpy, for source_test.go. Needs numpy alone.

  python sdk/engine/testdata/source.py > sdk/engine/testdata/source.json

Two layers of attention to the text and to a source, float64 over float32 weights. For each source, of unequal lengths, and each prompt:
the logits of its last position (float32, base64) and twelve greedy ids.
"""
import base64
import json

import numpy as np

HIDDEN, HEADS, VOCAB, LAYERS = 32, 2, 64, 2
SOURCES = [[7], [3, 200, 41, 90, 5, 77, 13], list(range(40))]
PROMPTS = [[1], [5, 9, 33, 2, 60, 7, 21], [(i * i + 3) % VOCAB for i in range(300)]]


def wave(seed, *shape):
    i = np.arange(np.prod(shape), dtype=np.float64)
    return np.sin(seed + i * 0.7 + (i % 13) * 1.9).astype(np.float32).astype(np.float64).reshape(shape)


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def heads(x):
    return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)


def attend(q, k, v, causal):
    q, k, v = heads(q), heads(k), heads(v)
    s = q @ k.transpose(0, 2, 1) * 0.25
    if causal:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    return (softmax(s) @ v).transpose(1, 0, 2).reshape(q.shape[1], HIDDEN)


def forward(ids, source):
    x, y = wave(1, VOCAB, HIDDEN)[ids], wave(2, 256, HIDDEN)[source]
    for i in range(LAYERS):
        qkv = x @ wave(10 + i, 3 * HIDDEN, HIDDEN).T * 0.3
        x = x + attend(qkv[:, :HIDDEN], qkv[:, HIDDEN : 2 * HIDDEN], qkv[:, 2 * HIDDEN :], True) @ wave(20 + i, HIDDEN, HIDDEN).T * 0.2
        k, v = y @ wave(40 + i, HIDDEN, HIDDEN).T * 0.3, y @ wave(50 + i, HIDDEN, HIDDEN).T * 0.3
        x = x + attend(x @ wave(30 + i, HIDDEN, HIDDEN).T * 0.3, k, v, False) @ wave(60 + i, HIDDEN, HIDDEN).T * 0.2
    return x @ wave(3, VOCAB, HIDDEN).T


out = []
for source in SOURCES:
    for prompt in PROMPTS:
        logits = forward(prompt, source)
        ids = list(prompt)
        for _ in range(12):
            ids.append(int(forward(ids, source)[-1].argmax()))
        out.append({
            "source": source, "prompt": prompt, "greedy": ids[len(prompt) :],
            "last": base64.b64encode(logits[-1].astype("<f4").tobytes()).decode(),
        })
print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")
