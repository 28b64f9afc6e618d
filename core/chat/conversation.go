package chat

import (
	"encoding/json"
	"slices"

	"github.com/clademl/clade/sdk/contract"
)

// Conversation is what a chat request says beside its sampling settings.
type Conversation struct {
	Messages []map[string]any
	// Tools and Documents are JSON lists, whose order of keys reaches the template.
	Tools, Documents json.RawMessage
	// Thinking switches reasoning on or off; nil leaves it to who is asked next.
	Thinking *bool
	// Effort is the reasoning effort: none switches reasoning off, any other on.
	Effort string
	// Held says that a grammar holds the answer from its first token: there is no room for a thought, and none is asked for unless
	// somebody does.
	Held bool
	// Kwargs are further variables of the template.
	Kwargs map[string]any
}

// Efforts are the levels of reasoning effort that clients may name for a template that does not read them itself.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// thinkingNames are the variables by which templates switch reasoning.
var thinkingNames = []string{"enable_thinking", "thinking"}

// Abilities are what a template does with a conversation, found by rendering a small one.
type Abilities struct {
	// Switch is the variable that switches reasoning; "" when there is none. On is its state when nobody sets it.
	Switch string
	On     bool
	// Tools reports whether tools reach the prompt.
	Tools bool
}

// Probe renders a small conversation in several ways. A template that cannot render it has no abilities.
func (t *Template) Probe() Abilities {
	messages := []map[string]any{{"role": "user", "content": "x"}}
	render := func(o RenderOptions) string {
		o.AddGenerationPrompt = true
		text, err := t.Render(messages, o)
		if err != nil {
			return ""
		}
		return text
	}
	plain := render(RenderOptions{})
	var a Abilities
	for _, name := range thinkingNames {
		on, off := render(RenderOptions{Kwargs: map[string]any{name: true}}), render(RenderOptions{Kwargs: map[string]any{name: false}})
		if on != off {
			a.Switch, a.On = name, plain == on
			break
		}
	}
	const probe = "clade_probe"
	tools := `[{"type": "function", "function": {"name": "` + probe + `", "description": "d", "parameters": {"type": "object", "properties": {}}}}]`
	a.Tools = plain != render(RenderOptions{ToolsJSON: []byte(tools)})
	return a
}

// MarshalJSON is the form in which a conversation travels; UnmarshalJSON keeps the order of keys.
func (c Conversation) MarshalJSON() ([]byte, error) { return json.Marshal(c.wire()) }

type wireConversation struct {
	Messages  json.RawMessage `json:"messages"`
	Tools     json.RawMessage `json:"tools,omitempty"`
	Documents json.RawMessage `json:"documents,omitempty"`
	Thinking  *bool           `json:"thinking,omitempty"`
	Effort    string          `json:"effort,omitempty"`
	Held      bool            `json:"held,omitempty"`
	Kwargs    map[string]any  `json:"kwargs,omitempty"`
}

func (c Conversation) wire() wireConversation {
	messages, err := json.Marshal(c.Messages)
	if err != nil {
		messages = []byte("null") // refused by the one who reads it
	}
	return wireConversation{messages, c.Tools, c.Documents, c.Thinking, c.Effort, c.Held, c.Kwargs}
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Conversation) UnmarshalJSON(data []byte) error {
	var w wireConversation
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	messages, err := ParseMessages(w.Messages)
	if err != nil {
		return err
	}
	*c = Conversation{messages, w.Tools, w.Documents, w.Thinking, w.Effort, w.Held, w.Kwargs}
	return nil
}

// AsksThinking is what the request says of reasoning: its effort before its switch before the template's variable of that name.
func (c Conversation) AsksThinking(variable string) *bool {
	if c.Effort != "" {
		on := c.Effort != "none"
		return &on
	}
	if c.Thinking != nil {
		return c.Thinking
	}
	if on, ok := c.Kwargs[variable].(bool); ok && variable != "" {
		return &on
	}
	return nil
}

// CheckEffort refuses a level that no template knows.
func CheckEffort(level string) error {
	if !slices.Contains(Efforts, level) {
		return contract.Errorf(contract.InvalidArgument, "reasoning_effort", "%q is not one of %v", level, Efforts)
	}
	return nil
}
