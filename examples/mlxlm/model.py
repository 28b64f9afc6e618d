"""Qwen2 by mlx-lm: what a plan says, a loaded model, and one request at a time."""

import json
import math
import os
import struct

from contract import Error

DEVICE = "cpu"
GRAPH = "example.org/qwen2"
ENTRY = "mlx-lm"
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "U32": 4, "I32": 4, "U8": 1}
# Python with mlx-lm and transformers imported, measured (about 500 MB resident), and MLX's allocator cache.
PROCESS = 1 << 30
CHUNK = 64


def corrupt(subject, message):
    return Error("ARTIFACT_CORRUPT", subject, message)


def headers(folder):
    """Every tensor's dtype and size, from checked headers: mlx reads payloads by them."""
    if not os.path.isdir(folder):
        raise Error("NOT_FOUND", folder, "is not there")
    files = sorted(f for f in os.listdir(folder) if f.endswith(".safetensors"))
    if not files:
        raise Error("NOT_FOUND", folder, "holds no .safetensors file")
    out = {}
    for name in files:
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            head = f.read(8)
            if len(head) < 8:
                raise corrupt(name, "ends in its header")
            (length,) = struct.unpack("<Q", head)
            if length > min(100 << 20, size - 8):
                raise corrupt(name, "a header of %d bytes in a file of %d" % (length, size))
            try:
                header = json.loads(f.read(length))
            except ValueError as e:
                raise corrupt(name, "header: %s" % e) from None
        for tensor, d in header.items():
            if tensor == "__metadata__":
                continue
            try:
                begin, end = d["data_offsets"]
                want = SIZES[d["dtype"]] * math.prod(d["shape"])
            except (KeyError, TypeError, ValueError):
                raise corrupt(name, "tensor %s is not described" % tensor) from None
            if not 0 <= begin <= end <= size - 8 - length or end - begin != want:
                raise corrupt(name, "tensor %s lies outside of the file, or is not of its shape" % tensor)
            out[tensor] = (d["dtype"], want)
    return out


def config(folder):
    try:
        with open(os.path.join(folder, "config.json")) as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise corrupt("config.json", str(e)) from None


def plan(spec):
    """Lines of memory, from headers only, and what the composition comes to."""
    folder, c = spec.artifacts[0].path, spec.composition
    cfg, tensors = config(folder), headers(folder)
    most = int(cfg.get("max_position_embeddings", 4096))
    context = c.context if c.HasField("context") else most
    if not 1 <= context <= most:
        raise Error("INVALID_ARGUMENT", "context", "%d is not between 1 and %d" % (context, most))
    if c.HasField("device") and c.device != DEVICE:
        raise Error("UNSUPPORTED_OPTION", "device", "%r is not %s" % (c.device, DEVICE))
    dtype = max((d for d, _ in tensors.values()), key=[d for d, _ in tensors.values()].count)
    if dtype not in DTYPES:
        raise Error("UNSUPPORTED_MODEL", "dtype", "weights in %s are not run" % dtype)
    heads = cfg.get("num_key_value_heads", cfg["num_attention_heads"])
    per_token = 2 * cfg["num_hidden_layers"] * heads * (cfg["hidden_size"] // cfg["num_attention_heads"]) * SIZES[dtype]
    steps = (context + 255) // 256 * 256  # mlx-lm's caches grow by 256 tokens
    lines = [
        ("weights", sum(n for _, n in tensors.values()), "as stored"),
        ("kv", per_token * steps, "%d tokens" % steps),
        ("transients", 4 * CHUNK * (cfg["vocab_size"] + 8 * cfg["intermediate_size"]), "evaluations of %d tokens" % CHUNK),
        ("process", PROCESS, "Python with mlx-lm, measured"),
    ]
    return {"lines": lines, "context": context, "per_token": per_token, "dtype": DTYPES[dtype], "vocab": cfg["vocab_size"]}


class Model:
    """An open model. Everything of it runs on the thread that opened it: MLX's streams belong to threads."""

    def __init__(self, folder, planned):
        import mlx.core as mx
        from mlx_lm.utils import load_model
        from pathlib import Path

        mx.set_default_device(mx.cpu)
        self.mx, self.context, self.vocab = mx, planned["context"], planned["vocab"]
        try:
            self.model, cfg = load_model(Path(folder))
        except (ValueError, KeyError, RuntimeError, TypeError) as e:
            raise corrupt(folder, str(e).splitlines()[0][:300]) from None
        eos = cfg.get("eos_token_id", [])
        self.eos = [eos] if isinstance(eos, int) else list(eos)
        self.evaluations = self.prompt_tokens = self.generated = 0

    def active(self):
        return self.mx.get_active_memory()

    def generate(self, ids, want, emit, cancelled, stop_at):
        """Emits ("prefill", done) and ("token", id); returns the reason and how many tokens count."""
        from mlx_lm.models.cache import make_prompt_cache

        mx, cache = self.mx, make_prompt_cache(self.model)
        if want["seed"] is not None:
            mx.random.seed(want["seed"] & (2**63 - 1))
        emit("prefill", 0)
        for at in range(0, len(ids) - 1, CHUNK):
            part = ids[at : min(at + CHUNK, len(ids) - 1)]
            if cancelled():
                raise Error("CANCELLED", "", "cancelled by the host")
            self.model(mx.array([part]), cache=cache)
            mx.eval([c.state for c in cache])
            self.evaluations += 1
            self.prompt_tokens += len(part)
            emit("prefill", at + len(part))
        self.prompt_tokens += 1
        last, made = ids[-1], 0
        while made < want["limit"]:
            if cancelled():
                raise Error("CANCELLED", "", "cancelled by the host")
            logits = self.model(mx.array([[last]]), cache=cache)[0, -1].astype(mx.float32)
            last = self.sample(logits, want)
            self.evaluations += 1
            if last in want["stops"]:
                return "STOP", made
            made += 1
            self.generated += 1
            emit("token", last)
            if stop_at() is not None and made > stop_at():
                return "STOP", stop_at() + 1
        return "LENGTH", made

    def sample(self, logits, want):
        mx = self.mx
        for i, v in want["bias"].items():
            logits[i] = logits[i] + v
        if want["temperature"] == 0:
            return int(mx.argmax(logits).item())
        order = mx.argsort(-logits)
        ranked = logits[order]
        keep = mx.ones(ranked.shape, dtype=mx.bool_)
        if want["top_p"] < 1:
            p = mx.softmax(ranked)
            keep = mx.cumsum(p) - p < want["top_p"]
        if want["top_k"] > 0:
            keep = keep & (mx.arange(ranked.size) < want["top_k"])
        ranked = mx.where(keep, ranked / want["temperature"], -float("inf"))
        return int(order[mx.random.categorical(ranked)].item())
