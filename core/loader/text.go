package loader

import (
	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/tokenizer"
)

// text is the host's side of a model: its tokenizer and its chat template. A model whose tokenizer is absent or not
// understood still runs on token ids; err says why it has no text.
type text struct {
	err       error
	tokenizer *tokenizer.Tokenizer // nil when err is set
	template  *chat.Template       // nil when the model has none, or templateErr is set
	// templateErr is why the template cannot be used; a bare prompt still can.
	templateErr error
	kwargs      map[string]any
}

// readText reads the tokenizer and the template of a decided model: the model's own template, else the family's.
func readText(d *Decision) *text {
	out := &text{kwargs: map[string]any{}}
	if d.Family.Record.Text == family.PluginText {
		out.err = contract.Errorf(contract.UnsupportedOption, d.Model.ID, "its text belongs to its plugin, which comes with 0.2.0")
		return out
	}
	if out.tokenizer, out.err = tokenizer.FromArtifact(d.Artifact); out.err != nil {
		return out
	}
	if on := d.Family.Record.Generation.EnableThinking; on != nil {
		out.kwargs["enable_thinking"] = *on
	}
	source, ok := out.tokenizer.ChatTemplate()
	if !ok {
		source = d.Family.Record.Template
	}
	if source != "" {
		out.template, out.templateErr = chat.NewTemplate(source, out.tokenizer.SpecialTokens())
	}
	return out
}

// render applies the chat template. kwargs of the request win over the family's.
func (t *text) render(messages []map[string]any, o chat.RenderOptions) (string, error) {
	if t.err != nil {
		return "", t.err
	}
	if t.templateErr != nil {
		return "", t.templateErr
	}
	if t.template == nil {
		return "", contract.Errorf(contract.UnsupportedOption, "messages", "the model has no chat template").
			WithNext("use `clade generate --prompt`, which needs none")
	}
	all := map[string]any{}
	for _, m := range []map[string]any{t.kwargs, o.Kwargs} {
		for k, v := range m {
			all[k] = v
		}
	}
	o.Kwargs = all
	return t.template.Render(messages, o)
}

// encode tokenizes text.
func (t *text) encode(s string, addSpecial bool) ([]int32, error) {
	if t.err != nil {
		return nil, t.err
	}
	return t.tokenizer.Encode(s, addSpecial)
}

// Text is the text side of a model that was decided but not opened, for the verbs that need no plugin.
type Text struct{ t *text }

// ReadText reads tokenizer and template without a plugin process.
func (d *Decision) ReadText() (Text, error) {
	t := readText(d)
	return Text{t}, t.err
}

// Encode tokenizes text.
func (t Text) Encode(s string, addSpecial bool) ([]int32, error) { return t.t.encode(s, addSpecial) }

// Render applies the chat template.
func (t Text) Render(messages []map[string]any, o chat.RenderOptions) (string, error) {
	return t.t.render(messages, o)
}
