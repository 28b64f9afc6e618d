"""Writes the goldens of Qwen 3.5's MTP heads: mlx-vlm's drafter over mlx-lm's model on the CPU at float32, over the tiny checkpoints.

  for f in qwen35 qwen35-moe qwen35-heads; do go run ./sdk/plugintest/tiny/cmd/tiny -family $f -out DIR; done
  python plugins/qwen/testdata/mtp.py DIR > plugins/qwen/testdata/mtp.json

For each checkpoint with a head, and each head in a folder of its own (NAME-head-hf, NAME-head-mlx of the model NAME): behind prompts of
7 and 40 ids and the token that the model picks, the head's row of logits (float32, base64) and the 4 ids that it drafts, greedily. Weights
are widened to float32 after they have been read as they are stored.
"""
import base64
import json
import sys
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from mlx_vlm.speculative.drafters.qwen3_5_mtp import Model, ModelConfig
from mlx_vlm.speculative.drafters.qwen3_5_mtp.split import Qwen3_5MTPSplitter

mx.set_default_device(mx.cpu)
LENGTHS, DRAFTS = (7, 40), 4


def prompt(n, vocab):
    return [(i * i * 31 + i * 7 + 11) % vocab for i in range(n)]


def widened(model):
    model.update(tree_map(lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a, model.parameters()))
    return model


def split_head(path):
    model = Model(ModelConfig.from_dict(json.loads((path / "config.json").read_text())))
    weights = model.sanitize(mx.load(str(path / "model.safetensors")))
    model.load_weights(list(weights.items()), strict=True)
    return model


def bundled_head(path):
    return Qwen3_5MTPSplitter().load(path)


def greedy(logits):
    return mx.argmax(logits, axis=-1)


def golden(name, target, head):
    vocab = target.language_model.args.vocab_size
    out = {"name": name, "vocab": vocab, "last_rows": {}, "drafts": {}}
    for n in LENGTHS:
        ids = mx.array([prompt(n, vocab)])
        hidden = target.language_model.model(ids, cache=make_prompt_cache(target))
        lm = target.language_model
        unembed = lm.model.embed_tokens.as_linear if lm.args.tie_word_embeddings else lm.lm_head
        bonus = int(greedy(unembed(hidden[:, -1:])).item())
        head.reset(target)
        head.prefill_from_target_hidden(ids, hidden, bonus, greedy)
        logits = unembed(head._seed_hidden)[0, -1]
        assert logits.dtype == mx.float32
        out["last_rows"][str(n)] = base64.b64encode(np.array(logits).tobytes()).decode()
        drafts = head.draft_block(bonus, hidden[:, -1:], None, DRAFTS + 1, greedy)
        out["drafts"][str(n)] = [int(t) for t in drafts[0]]
    return out


def has_head(path):
    return any(k.startswith("mtp.") for k in mx.load(str(path / "model.safetensors")))


if __name__ == "__main__":
    below = Path(sys.argv[1])
    all_paths = sorted(p for p in below.iterdir() if p.is_dir())
    models = [p for p in all_paths if "-head-" not in p.name and has_head(p)]
    heads = [p for p in all_paths if "-head-" in p.name]
    checkpoints = []
    for p in models:
        checkpoints.append(golden(p.name, widened(load_model(p, strict=True)[0]), widened(bundled_head(p))))
    for p in heads:
        target = below / p.name[: p.name.index("-head-")]
        checkpoints.append(golden(p.name, widened(load_model(target, strict=True)[0]), widened(split_head(p))))
    print(json.dumps({
        "oracle": f"mlx-vlm {version('mlx-vlm')}, mlx-lm {version('mlx-lm')}, mlx {mx.__version__}, cpu, float32",
        "command": "python mtp.py DIR > mtp.json",
        "checkpoints": checkpoints,
    }, indent=1))
