package loader

import (
	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/reply"
	"github.com/clademl/clade/core/chat/toolcall"
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
	source    string
	// templateErr is why the template cannot be used; a bare prompt still can.
	toolTemplate *chat.Template // of conversations with tools, where the model has another one for them
	templateErr  error
	abilities    chat.Abilities
	reasoning    *reply.Reasoning
	syntaxes     []*toolcall.Syntax
	thinking     *bool // the family's default
}

// readText reads the tokenizer and the template of a decided model: the model's own template, else the family's.
func readText(d *Decision) *text {
	out := &text{thinking: d.Family.Record.Generation.EnableThinking}
	if d.Family.Record.Text == family.PluginText {
		out.err = contract.Errorf(contract.UnsupportedOption, d.Model.ID, "its text belongs to its plugin, which comes with 0.2.0")
		return out
	}
	if out.tokenizer, out.err = tokenizer.FromArtifact(d.Artifact); out.err != nil {
		return out
	}
	var ok bool
	if out.source, ok = out.tokenizer.ChatTemplate(); !ok {
		out.source = d.Family.Record.Template
	}
	if out.source == "" {
		return out
	}
	if out.template, out.templateErr = chat.NewTemplate(out.source, out.tokenizer.SpecialTokens()); out.templateErr != nil {
		return out
	}
	out.abilities = out.template.Probe()
	if err := out.readToolTemplate(); err != nil {
		out.templateErr = err
		return out
	}
	marks := d.Family.Record.Sentinels
	var call, thought family.Pair
	if marks != nil && marks.ToolCall != nil {
		call = *marks.ToolCall
	}
	if marks != nil && marks.Reasoning != nil {
		thought = *marks.Reasoning
	}
	out.reasoning = reply.DetectReasoning(out.source, thought.Open, thought.Close)
	out.syntaxes = toolcall.Detect(out.source, call.Open, call.Close)
	return out
}

// render applies the chat template as it is told.
func (t *text) render(messages []map[string]any, o chat.RenderOptions) (string, error) {
	switch {
	case t.err != nil:
		return "", t.err
	case t.templateErr != nil:
		return "", t.templateErr
	case t.template == nil:
		return "", contract.Errorf(contract.UnsupportedOption, "messages", "the model has no chat template").
			WithNext("use `clade generate --prompt`, which needs none")
	}
	if t.toolTemplate != nil && (len(o.ToolsJSON) > 0 || o.Tools != nil) {
		return t.toolTemplate.Render(messages, o)
	}
	return t.template.Render(messages, o)
}

// readToolTemplate reads the template named tool_use. What it shows of tool calls counts beside the other's.
func (t *text) readToolTemplate() (err error) {
	source, ok := t.tokenizer.ToolTemplate()
	if !ok {
		return nil
	}
	if t.toolTemplate, err = chat.NewTemplate(source, t.tokenizer.SpecialTokens()); err != nil {
		return err
	}
	t.abilities.Tools = t.toolTemplate.Probe().Tools
	t.source += "\n" + source
	return nil
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

// Render is the prompt of a conversation, as text.
func (t Text) Render(c chat.Conversation, generationPrompt bool) (string, error) {
	text, _, _, err := t.t.converse(c, nil, generationPrompt)
	return text, err
}
