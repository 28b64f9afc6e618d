"""Renders chat templates with transformers and writes golden.json.

Run from core/chat, with transformers 5.24.0 and jinja2 3.1.6 installed:

    python testdata/golden.py "$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)"

The argument is the folder of the Go module ardanlabs/jinja, whose testdata holds published templates and captured
requests; of their renderings only length and SHA-256 are kept.
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils as ctu


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9, 1234)


ctu.datetime = FixedTime
here = pathlib.Path(__file__).parent
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def render(template, messages, tools=None, add_generation_prompt=True, **kwargs):
    try:
        out, _ = ctu.render_jinja_template(
            [messages], tools=tools, chat_template=template, add_generation_prompt=add_generation_prompt, **SPECIALS, **kwargs
        )
        return {"text": out[0]}
    except jinja2.exceptions.TemplateError as e:
        return {"raised": e.message or ""}
    except Exception as e:  # a template that Python itself cannot render
        return {"failed": type(e).__name__}


def brief(r):
    if "text" not in r:
        return r
    data = r["text"].encode()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


module = pathlib.Path(sys.argv[1]) / "testdata"
published = []
for tpl in sorted((module / "templates").glob("*.jinja")):
    source = tpl.read_text()
    for req in sorted((module / "requests").glob("*.json")):
        body = json.loads(req.read_text())
        kwargs = {k: body[k] for k in ("enable_thinking",) if k in body}
        r = render(source, body["messages"], body.get("tools"), **kwargs)
        published.append({"template": tpl.name, "request": req.name, **brief(r)})

cases = json.loads((here / "cases.json").read_text())
own = []
for c in cases["cases"]:
    r = render(cases["templates"].get(c["template"], c["template"]), c["messages"], c.get("tools"),
               c.get("add_generation_prompt", True), **c.get("kwargs", {}))
    own.append({"name": c["name"], **r})

golden = {
    "made_by": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}",
    "command": "python testdata/golden.py \"$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)\"",
    "now": "2026-03-05T14:07:09.001234Z",
    "specials": SPECIALS,
    "own": own,
    "published": published,
}
(here / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
print(len(own), "own,", len(published), "published,", sum("raised" in p for p in published), "raised,", sum("failed" in p for p in published), "failed")
