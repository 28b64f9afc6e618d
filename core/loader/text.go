package loader

import (
	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/tokenizer"
)

// text is the host's side of a model: its tokenizer and its chat template.
type text struct {
	tokenizer *tokenizer.Tokenizer
	template  *chat.Template // nil when the model has none
	kwargs    map[string]any
}

// readText reads the tokenizer and the template of a decided model: the model's own template, else the family's.
func readText(d *Decision) (*text, error) {
	if d.Family.Record.Text == family.PluginText {
		return nil, contract.Errorf(contract.UnsupportedModelLoad, d.Profile.GetId(), "its text belongs to the plugin, which comes with 0.2.0")
	}
	t, err := tokenizer.FromArtifact(d.Artifact)
	if err != nil {
		return nil, err
	}
	out := &text{tokenizer: t, kwargs: map[string]any{}}
	if on := d.Family.Record.Generation.EnableThinking; on != nil {
		out.kwargs["enable_thinking"] = *on
	}
	source, ok := t.ChatTemplate()
	if !ok {
		source = d.Family.Record.Template
	}
	if source != "" {
		if out.template, err = chat.NewTemplate(source, t.SpecialTokens()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// render applies the chat template. kwargs of the request win over the family's.
func (t *text) render(messages []map[string]any, o chat.RenderOptions) (string, error) {
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

// Text is the text side of a model that was decided but not opened, for the verbs that need no plugin.
type Text struct{ *text }

// ReadText reads tokenizer and template without a plugin process.
func (d *Decision) ReadText() (Text, error) {
	t, err := readText(d)
	return Text{t}, err
}

// Tokenizer of the model.
func (t Text) Tokenizer() *tokenizer.Tokenizer { return t.tokenizer }

// Render applies the chat template.
func (t Text) Render(messages []map[string]any, o chat.RenderOptions) (string, error) {
	return t.render(messages, o)
}
