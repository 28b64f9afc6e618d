"""Writes what transformers makes of tokenizer_config.json and special_tokens_map.json beside the tokenizers of golden.py.

Run from sdk/tokenizer, with transformers 5.24.0 installed:

    python testdata/config.py

writes testdata/config.json: for each case the files, the named tokens, and ids and text with and without special tokens.
"""

import json
import pathlib
import tempfile

from transformers import PreTrainedTokenizerFast

here = pathlib.Path(__file__).parent
TEXTS = ["the <|end|> dog the!<|im_start|> x", " ! in <|begin|>"]


def token(content, **flags):
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, **flags}


def bare(content, **flags):
    return {k: v for k, v in token(content, **flags).items() if k != "__type"}


ENDS = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
DECODER = {"added_tokens_decoder": {"0": {**bare("<|begin|>"), "special": True}, "1": {**bare("<|end|>"), "special": True}}}
PADDING = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1, "pad_type_id": 0, "pad_token": "<|end|>"}
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
CASES = {  # tokenizer, tokenizer_config.json, special_tokens_map.json, changes of tokenizer.json
    "config alone": ("gpt2", ENDS, None),
    "map alone": ("gpt2", None, ENDS),
    "map overrides config": ("gpt2", ENDS, {"eos_token": "<|im_start|>"}),
    "map overrides with null": ("gpt2", {**ENDS, "pad_token": "<|end|>"}, {"pad_token": None}),
    "config with added_tokens_decoder ignores the map": ("gpt2", {**ENDS, **DECODER}, {"eos_token": "<|im_start|>", "pad_token": "<|end|>"}),
    "objects": ("gpt2", {"bos_token": token("<|begin|>")}, {"eos_token": bare("<|end|>", lstrip=True)}),
    "named token of the vocabulary is cut out": ("gpt2", {**ENDS, "pad_token": "!"}, None),
    "named object of the vocabulary keeps its flags": ("gpt2", ENDS, {"pad_token": bare("!", lstrip=True)}),
    "names of the model's own": ("gpt2", {"audio_token": "!", "image_token": token("<|im_start|>"), "thing_tokens": "x"}, {"video_token": "<|end|>"}),
    "extra tokens by name": ("gpt2", {"extra_special_tokens": {"image_token": "!"}, **ENDS}, {"extra_special_tokens": {"audio_token": "<|end|>"}}),
    "extra tokens in a list": ("gpt2", {"extra_special_tokens": ["!", token("in")]}, None),
    "additional tokens in a list": ("gpt2", {"additional_special_tokens": ["!", token("in")]}, None),
    "additional tokens of the map": ("gpt2", ENDS, {"additional_special_tokens": ["!"]}),
    "extra tokens of both": ("gpt2", {"extra_special_tokens": ["!"]}, {"extra_special_tokens": [bare("in")]}),
    "template of the file": ("llama3", ENDS, None),
    "no begin token": ("llama3", {**ENDS, "add_bos_token": False}, None),
    "only the end token is named": ("llama3", {**ENDS, "add_eos_token": True}, None),
    "both ends": ("gpt2", {**ENDS, "add_bos_token": True, "add_eos_token": True}, None),
    "begin token without a name": ("llama3", {"eos_token": "<|end|>", "add_bos_token": True}, None),
    "padding names a token": ("gpt2", ENDS, None, {"padding": PADDING}),
    "padding yields to the config": ("gpt2", {"pad_token": "<|begin|>"}, None, {"padding": PADDING}),
    "truncation is not applied": ("llama3", ENDS, None, {"truncation": TRUNCATION, "padding": PADDING}),
}


def run(tokenizer, config, special_map, changes=None):
    case = {"tokenizer": tokenizer, "config": config, "map": special_map, "changes": changes}
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        file = json.loads((here / f"tokenizers/{tokenizer}.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**file, **(changes or {})}))
        for name, value in (("tokenizer_config", config), ("special_tokens_map", special_map)):
            if value is not None:
                (folder / f"{name}.json").write_text(json.dumps(value))
        t = PreTrainedTokenizerFast.from_pretrained(folder)
        case["named"] = t.special_tokens_map
        case["ids"] = [t.encode(s, add_special_tokens=False) for s in TEXTS]
        case["special"] = [t.encode(s) for s in TEXTS]
        case["skipped"] = [t.decode(ids, skip_special_tokens=True) for ids in case["special"]]
    return case


cases = {name: run(*case) for name, case in CASES.items()}
(here / "config.json").write_text(json.dumps({"texts": TEXTS, "cases": cases}, ensure_ascii=True) + "\n")
