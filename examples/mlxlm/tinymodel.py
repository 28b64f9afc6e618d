"""Writes a small random Qwen2 into a folder, with mlx-lm's own classes."""

import json
import os
import sys

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.qwen2 import Model, ModelArgs

CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": 258,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 256,
}

if __name__ == "__main__":
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    mx.set_default_device(mx.cpu)
    mx.random.seed(7)
    model = Model(ModelArgs.from_dict(CONFIG))
    weights = {k: mx.random.normal(v.shape) * (0.1 if v.ndim > 1 else 0.05) + (1 if "norm" in k else 0) for k, v in tree_flatten(model.parameters())}
    mx.save_safetensors(os.path.join(folder, "model.safetensors"), weights, metadata={"format": "mlx"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f, indent=2)
