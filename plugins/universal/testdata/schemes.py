"""Writes the goldens of the KV schemes: a llama and a minicpm3 in numpy whose attention is over coded rows, over tiny checkpoints.

  go run ./sdk/plugintest/tiny/cmd/tiny -out DIR
  go run ./sdk/plugintest/tiny/cmd/tiny -family dense -out DENSE
  python plugins/universal/testdata/schemes.py DIR sdk/kv DENSE > plugins/universal/testdata/schemes.json

Everything is float64 but what is coded, which is float32 as docs/kv.md has it: each token's rotated keys and its values go through the
codes of sdk/kv/testdata/reference.py, and attention is the plain definition over what the codes stand for. Of minicpm3 it is a token's
row, rotated channels and latent, that goes through them; keys and values of heads are expanded from what the codes stand for. For each scheme: the logits
(float32, base64) of some positions of 300 ids. Needs numpy alone.
"""
import base64
import json
import sys
from pathlib import Path

import numpy as np

KV = Path(sys.argv[2])
sys.path.insert(0, str(KV / "testdata"))
import reference  # noqa: E402

LENGTH, ROWS = 300, (0, 6, 64, 255, 256, 299)
F = np.float32
TABLE = reference.tables(KV)


def bf16(x):
    u = np.ascontiguousarray(x, F).view(np.uint32).astype(np.uint64)
    u = (u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000
    return u.astype(np.uint32).view(F)


def affine(bits, group):
    return lambda x: reference.affine_back(reference.affine(x, bits, group), bits, group, len(x))


def turbo(bits):
    return lambda x: reference.turbo_back(reference.turbo(x, bits, TABLE), bits, len(x), TABLE)


def same(x):
    return x


# By name: keys and values of a layer, and the first token that attends to codes.
SCHEMES = {
    "native": (lambda _: (same, same), 0),
    "bf16": (lambda _: (bf16, bf16), 0),
    "affine:8g32": (lambda _: (affine(8, 32),) * 2, 0),
    "affine:4g32": (lambda _: (affine(4, 32),) * 2, 0),
    "affine:3g32": (lambda _: (affine(3, 32),) * 2, 0),
    "layers:0=4g32,2=8g32": (lambda i: (affine({0: 4, 2: 8}[i], 32),) * 2 if i in (0, 2) else (same, same), 0),
    "turbo:k8v3": (lambda _: (turbo(8), turbo(3)), 0),
    "turbo:k4v4": (lambda _: (turbo(4), turbo(4)), 0),
    "affine:4g32@100": (lambda _: (affine(4, 32),) * 2, 100),
}


def tensors(path):
    data = (path / "model.safetensors").read_bytes()
    n = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + n]), data[8 + n :]
    return {
        k: np.frombuffer(body[v["data_offsets"][0] : v["data_offsets"][1]], F).reshape(v["shape"]).astype(np.float64)
        for k, v in head.items() if k != "__metadata__"
    }


def norm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rotate(x, base):
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d)
    c, s, a, b = np.cos(angle)[:, None], np.sin(angle)[:, None], x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def coded(x, code):
    return np.stack([np.stack([code(h) for h in t]) for t in x.astype(F)]).astype(np.float64) if code is not same else x


def attend(q, k, v, window, keep=0):
    n, heads, d = q.shape
    group = heads // k.shape[1]
    causal = np.tril(np.ones((n, n), bool))
    seen = causal & (~np.tril(causal, -window if window else -n) | (np.arange(n) < keep))
    out = np.empty((n, heads, v.shape[-1]))
    for h in range(heads):
        s = np.where(seen, q[:, h] @ k[:, h // group].T / np.sqrt(d), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, h // group]
    return out


def logits(config, w, ids, codes, start, bound=(0, 0)):
    """bound is what layers see that would attend to all: tokens back, and first ones."""
    heads, kv, d, eps = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"], config["rms_norm_eps"]
    base = config["rope_theta"]
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    x, n = w["model.embed_tokens.weight"][ids], len(ids)
    for i, kind in enumerate(kinds):
        p = f"model.layers.{i}."
        y = norm(x, w[p + "input_layernorm.weight"], eps)
        q, k, v = ((y @ w[p + f"self_attn.{m}_proj.weight"].T).reshape(n, -1, d) for m in "qkv")
        q, k = rotate(q, base), rotate(k, base)
        keys, values = codes(i)
        window, keep = (config["sliding_window"], 0) if kind == "sliding_attention" else bound
        o = attend(q, coded(k, keys), coded(v, values), window, keep)
        o[:start] = attend(q, k, v, window, keep)[:start]
        x = x + o.reshape(n, -1) @ w[p + "self_attn.o_proj.weight"].T
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        g = y @ w[p + "mlp.gate_proj.weight"].T
        x = x + (g / (1 + np.exp(-g)) * (y @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T
    x = norm(x, w["model.norm.weight"], eps)
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def divided(x, base, factors, scale):
    """Longrope: rotated by divided frequencies, and longer."""
    n, _, d = x.shape
    angle = np.arange(n)[:, None] * base ** (-np.arange(0, d, 2) / d) / np.array(factors)
    c, s, a, b = np.cos(angle)[:, None], np.sin(angle)[:, None], scale * x[..., : d // 2], scale * x[..., d // 2 :]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def latent_logits(config, w, ids, codes, start):
    heads, eps, hidden, layers = (config[k] for k in ("num_attention_heads", "rms_norm_eps", "hidden_size", "num_hidden_layers"))
    rank, plain, turning = config["kv_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    scaling = config["rope_scaling"]
    original = scaling["original_max_position_embeddings"]
    longer = np.sqrt(1 + np.log(config["max_position_embeddings"] / original) / np.log(original))
    residual = config["scale_depth"] / np.sqrt(layers)
    x, n = w["model.embed_tokens.weight"][ids] * config["scale_emb"], len(ids)

    def turned(a):
        return divided(a, config["rope_theta"], scaling["long_factor"], longer)

    for i in range(layers):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        y = norm(x, w[p + "input_layernorm.weight"], eps)
        q = norm(y @ w[a + "q_a_proj.weight"].T, w[a + "q_a_layernorm.weight"], 1e-5) @ w[a + "q_b_proj.weight"].T
        q = q.reshape(n, heads, -1)
        q = np.concatenate([turned(q[..., plain:]), q[..., :plain]], -1)
        row = y @ w[a + "kv_a_proj_with_mqa.weight"].T
        row = np.concatenate([turned(row[:, None, rank:]), norm(row[:, :rank], w[a + "kv_a_layernorm.weight"], 1e-5)[:, None]], -1)

        def attended(row):
            kv = (row[:, 0, turning:] @ w[a + "kv_b_proj.weight"].T).reshape(n, heads, -1)
            k = np.concatenate([np.repeat(row[..., :turning], heads, 1), kv[..., :plain]], -1)
            return attend(q, k, kv[..., plain:], 0)

        o = attended(coded(row, codes(i)[0]))
        o[:start] = attended(row)[:start]
        x = x + residual * (o.reshape(n, -1) @ w[a + "o_proj.weight"].T)
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        g = y @ w[p + "mlp.gate_proj.weight"].T
        x = x + residual * ((g / (1 + np.exp(-g)) * (y @ w[p + "mlp.up_proj.weight"].T)) @ w[p + "mlp.down_proj.weight"].T)
    return norm(x, w["model.norm.weight"], eps) / (hidden / config["dim_model_base"]) @ w["lm_head.weight"].T


def main(folder, dense):
    out = []
    for name in ("llama-untied-headdim", "llama-sliding", "minicpm3-a"):
        latent = name == "minicpm3-a"
        path = (dense if latent else folder) / name
        config, w = json.loads((path / "config.json").read_text()), tensors(path)
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
        ids = [(i * i * 31 + i * 7 + 11) % config["vocab_size"] for i in range(LENGTH)]
        for scheme, (codes, start) in SCHEMES.items():
            if name == "llama-sliding" and scheme not in ("native", "bf16"):
                continue  # its heads are 16 wide
            if latent and scheme in ("turbo:k8v3", "affine:3g32"):
                continue  # its rows are keys and values at once; and three bits lie too far apart for it
            made = (latent_logits if latent else logits)(config, w, ids, codes, start)
            rows = {str(r): made[r].astype("<f4") for r in ROWS}
            out.append({"name": name, "scheme": scheme, "rows": {r: base64.b64encode(v.tobytes()).decode() for r, v in rows.items()}})
    print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main(Path(sys.argv[1]), Path(sys.argv[3]))
