package openai

import (
	"github.com/clademl/clade/core/generate"
)

// chatShape writes chat completions.
type chatShape struct{}

func (chatShape) object(chunk bool) string {
	if chunk {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (chatShape) prompts(m Model, q *chatRequest) ([]generate.Prompt, error) {
	p, err := m.Prompt(q.conversation)
	return []generate.Prompt{p}, err
}

func (chatShape) whole(c *choice, r generate.Result) {
	m := &message{Role: "assistant", Content: &r.Text, Reasoning: r.Reasoning}
	if r.Text == "" && len(r.Calls) > 0 {
		m.Content = nil
	}
	for _, call := range r.Calls {
		m.ToolCalls = append(m.ToolCalls, callOf(call, nil))
	}
	c.Message = m
}

func (chatShape) piece(c *choice, d generate.Delta, calls int, first bool) {
	c.Delta = &delta{}
	if first {
		c.Delta.Role = "assistant"
		c.Delta.Content = new(string)
	}
	if d.Text != "" {
		c.Delta.Content = &d.Text
	}
	if d.Reasoning != "" {
		c.Delta.Reasoning = &d.Reasoning
	}
	for i, call := range d.Calls {
		at := calls + i
		c.Delta.ToolCalls = append(c.Delta.ToolCalls, callOf(call, &at))
	}
}

func (chatShape) last(c *choice, first bool) {
	c.Delta = &delta{}
	if first {
		c.Delta = &delta{Role: "assistant", Content: new(string)}
	}
}
