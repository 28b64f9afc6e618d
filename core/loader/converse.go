package loader

import (
	"strings"
	"time"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/reply"
	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

const effortVariable = "reasoning_effort"

// converse renders a conversation. Whether the model thinks is decided by the request, then by the server, then by the family, then by
// the template itself; what a request asks of a template that cannot do it is refused by name.
func (t *text) converse(c chat.Conversation, server *bool, generationPrompt bool) (string, generate.Prompt, chat.RenderOptions, error) {
	p := generate.Prompt{Reply: true, Tools: c.Tools}
	o := chat.RenderOptions{AddGenerationPrompt: generationPrompt, DocumentsJSON: c.Documents, Kwargs: map[string]any{}, Now: time.Now()}
	if t.template == nil {
		_, err := t.render(c.Messages, o)
		return "", p, o, err
	}
	for k, v := range c.Kwargs {
		o.Kwargs[k] = v
	}
	if err := t.think(c, server, &o, &p); err != nil {
		return "", p, o, err
	}
	if len(c.Tools) > 0 {
		if !t.abilities.Tools {
			return "", p, o, contract.Errorf(contract.UnsupportedOption, "tools", "the model's chat template has no place for tools")
		}
		var err error
		if o.Tools, err = chat.PrepareTools(c.Tools); err != nil {
			return "", p, o, err
		}
	}
	if len(c.Documents) > 0 && !strings.Contains(t.source, "documents") {
		return "", p, o, contract.Errorf(contract.UnsupportedOption, "documents", "the model's chat template has no place for documents")
	}
	chat.ParseArguments(c.Messages)
	text, err := t.render(c.Messages, o)
	p.Inside = t.reasoning.Inside(text)
	return text, p, o, err
}

// think sets the template's variables of reasoning.
func (t *text) think(c chat.Conversation, server *bool, o *chat.RenderOptions, p *generate.Prompt) error {
	readsEffort := strings.Contains(t.source, effortVariable)
	variable := t.abilities.Switch
	if c.Effort != "" && !readsEffort {
		if err := chat.CheckEffort(c.Effort); err != nil {
			return err
		}
	}
	if c.Effort != "" && readsEffort && (c.Effort != "none" || variable == "") {
		o.Kwargs[effortVariable] = c.Effort
	}
	asked := c.AsksThinking(variable)
	if c.Held && asked != nil && *asked {
		return contract.Errorf(contract.UnsupportedOption, "thinking", "an answer that is held to a grammar has no room for a thought").
			WithNext("leave one of them out")
	}
	if c.Held && variable != "" {
		asked = new(bool)
	}
	if variable == "" {
		return t.unswitched(c, asked, readsEffort)
	}
	if c.Effort != "" && c.Effort != "none" && !readsEffort {
		p.Notes = append(p.Notes, "reasoning_effort: the template knows no levels; reasoning is on")
	}
	for _, from := range []*bool{asked, server, t.thinking} {
		if from != nil {
			on := *from
			o.Kwargs[variable], p.Thinking = on, &on
			return nil
		}
	}
	on := t.abilities.On
	p.Thinking = &on
	return nil
}

// unswitched accepts what a template without a switch does anyway.
func (t *text) unswitched(c chat.Conversation, asked *bool, readsEffort bool) error {
	subject := "thinking"
	if c.Effort != "" {
		subject = effortVariable
	}
	switch {
	case asked == nil, c.Effort != "" && readsEffort, *asked == (t.reasoning != nil):
		return nil
	case *asked:
		return contract.Errorf(contract.UnsupportedOption, subject, "the model does not reason")
	}
	return contract.Errorf(contract.UnsupportedOption, subject, "the model always reasons; its template has no switch")
}

// Prompt renders a conversation with the model's template and tokenizes it. The template writes what begins a text, so the
// tokenizer adds nothing.
func (m *Model) Prompt(c chat.Conversation) (generate.Prompt, error) { return m.ServerPrompt(c, nil) }

// ServerPrompt is Prompt with the server's choice of reasoning below the request's.
func (m *Model) ServerPrompt(c chat.Conversation, thinking *bool) (generate.Prompt, error) {
	rendered, p, o, err := m.text.converse(c, thinking, true)
	if err != nil {
		return p, err
	}
	if p.IDs, err = m.text.encode(rendered, false); err == nil {
		p.Borders = m.borders(c, o, p.IDs)
	}
	return p, err
}

// HasTemplate reports whether the model, or its family, has a chat template.
func (m *Model) HasTemplate() bool { return m.text.template != nil || m.text.templateErr != nil }

// format is how the reply to a prompt is read.
func (t *text) format(p generate.Prompt) (reply.Format, error) {
	if !p.Reply {
		return reply.Format{}, nil
	}
	f := reply.Format{Reasoning: t.reasoning, Tokens: map[string]bool{}}
	if len(p.Tools) > 0 {
		tools, err := toolcall.NewTools(p.Tools)
		if err != nil {
			return f, err
		}
		f.Calls, f.Tools = t.syntaxes, tools
	}
	for _, mark := range f.Markers() {
		if id, ok := t.tokenizer.ID(mark); ok && t.tokenizer.IsSpecial(id) {
			f.Tokens[mark] = true
		}
	}
	return f, nil
}
