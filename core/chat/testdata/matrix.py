"""Renders every conversation of conversations.json with every template by transformers; writes matrix.json.

Run from core/chat, with transformers 5.24.0 and jinja2 3.1.6 installed:

    python testdata/matrix.py "$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)" [SmolLM2.gguf]

The templates are the 17 published ones in the Go module's testdata, SmolLM2's (in cases.json; compared with the GGUF's own
when that is given) and minicpm5.jinja. Of a rendering its length in bytes and the start of its SHA-256 are kept; a template
that raised has its own words, one that Python could not render the name of Python's error. With --text NAME CONVERSATION the
rendering itself is printed.
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
data = json.loads((here / "conversations.json").read_text())


def render(template, c):
    try:
        out, _ = ctu.render_jinja_template(
            [c["messages"]], tools=data["tools"] if c.get("tools") else None, chat_template=template,
            add_generation_prompt=c.get("add_generation_prompt", True), **SPECIALS, **c.get("kwargs", {})
        )
        return {"text": out[0]}
    except jinja2.exceptions.UndefinedError:
        return {"failed": "UndefinedError"}
    except jinja2.exceptions.TemplateError as e:
        return {"raised": e.message or ""}
    except Exception as e:
        return {"failed": type(e).__name__}


def brief(r):
    if "text" not in r:
        return r
    text = r["text"].encode()
    return {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()[:24]}


templates = {p.name: p.read_text() for p in sorted((pathlib.Path(sys.argv[1]) / "testdata" / "templates").glob("*.jinja"))}
templates["smollm2"] = json.loads((here / "cases.json").read_text())["templates"]["smollm2"]
templates["minicpm5"] = (here / "minicpm5.jinja").read_text()
rest = sys.argv[2:]
if rest and rest[0] == "--text":
    sys.stdout.write(json.dumps(render(templates[rest[1]], next(c for c in data["conversations"] if c["name"] == rest[2])), ensure_ascii=False))
    sys.exit()
if rest:
    import gguf

    field = gguf.GGUFReader(rest[0]).fields["tokenizer.chat_template"]
    if bytes(field.parts[field.data[0]]).decode() != templates["smollm2"]:
        sys.exit("the template in cases.json is not the GGUF's")

lines = []
for name, source in templates.items():
    for c in data["conversations"]:
        lines.append(json.dumps({"template": name, "conversation": c["name"], **brief(render(source, c))}, ensure_ascii=False))
head = {
    "made_by": f"transformers {transformers.__version__}, jinja2 {jinja2.__version__}",
    "command": "python testdata/matrix.py \"$(go list -m -f '{{.Dir}}' github.com/ardanlabs/jinja)\"",
    "now": "2026-03-05T14:07:09.001234Z",
    "specials": SPECIALS,
}
text = json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "renderings": [\n' + ",\n".join(lines) + "\n ]\n}\n"
(here / "matrix.json").write_text(text)
made = json.loads(text)["renderings"]
print(len(made), "renderings,", sum("raised" in r for r in made), "raised,", sum("failed" in r for r in made), "failed")
