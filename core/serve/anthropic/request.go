package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
)

// body is a request as it comes.
type body struct {
	Model         string          `json:"model"`
	Messages      []message       `json:"messages"`
	MaxTokens     *uint32         `json:"max_tokens"`
	System        json.RawMessage `json:"system"`
	StopSequences []string        `json:"stop_sequences"`
	Stream        bool            `json:"stream"`
	Temperature   *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          *uint32         `json:"top_k"`
	Tools         []tool          `json:"tools"`
	ToolChoice    *toolChoice     `json:"tool_choice"`
	Thinking      *thinking       `json:"thinking"`
	OutputConfig  *outputConfig   `json:"output_config"`
	Metadata      json.RawMessage `json:"metadata"`
	ServiceTier   string          `json:"service_tier"`
	LoRA          json.RawMessage `json:"lora"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type tool struct {
	Type         string          `json:"type"`
	Name         string          `json:"name"`
	Description  *string         `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	Strict       *bool           `json:"strict"`
	CacheControl json.RawMessage `json:"cache_control"`
}

type toolChoice struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	OnlyOne bool   `json:"disable_parallel_tool_use"`
}

type thinking struct {
	Type   string  `json:"type"`
	Budget *uint32 `json:"budget_tokens"`
}

type outputConfig struct {
	Effort string `json:"effort"`
}

// block is a part of a message; which fields count depends on the type.
type block struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      json.RawMessage `json:"content"`
	IsError      bool            `json:"is_error"`
	Thinking     *string         `json:"thinking"`
	Signature    string          `json:"signature"`
	CacheControl json.RawMessage `json:"cache_control"`
}

// request is a body that was understood completely.
type request struct {
	model        string
	conversation chat.Conversation
	settings     generate.Settings
	stream       bool
	oneCall      bool
	forced       string // the Call of the prompt
	notes        []string
}

func bad(kind contract.Kind, field, format string, args ...any) error {
	return contract.Errorf(kind, field, format, args...)
}

// strict reads JSON and refuses fields that it does not know, by name.
func strict(where string, raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return bad(contract.UnsupportedOption, strings.TrimPrefix(where+".", "body.")+strings.Trim(name, `"`), "unknown or unsupported field")
		}
		return bad(contract.InvalidArgument, where, "%w", err)
	}
	if d.More() {
		return bad(contract.InvalidArgument, where, "something follows the object")
	}
	return nil
}

// read understands a body; counting needs no max_tokens.
func read(raw []byte, counting bool) (*request, error) {
	if !utf8.Valid(raw) {
		return nil, bad(contract.InvalidArgument, "body", "is not UTF-8 text")
	}
	var b body
	if err := strict("body", raw, &b); err != nil {
		return nil, err
	}
	q := &request{model: b.Model, stream: b.Stream}
	q.settings = generate.Settings{MaxTokens: b.MaxTokens, Temperature: b.Temperature, TopP: b.TopP, TopK: b.TopK, Stop: b.StopSequences}
	switch {
	case b.MaxTokens == nil && !counting:
		return nil, bad(contract.InvalidArgument, "max_tokens", "is missing")
	case len(b.Messages) == 0:
		return nil, bad(contract.InvalidArgument, "messages", "want at least one message")
	case b.ServiceTier != "" && b.ServiceTier != "auto" && b.ServiceTier != "standard_only":
		return nil, bad(contract.UnsupportedOption, "service_tier", "%q is not supported", b.ServiceTier)
	}
	if len(b.LoRA) > 0 && string(b.LoRA) != "null" {
		var err error
		if q.settings.Adapter, err = openai.ReadAdapters("lora", b.LoRA); err != nil {
			return nil, err
		}
	}
	if err := q.readMessages(b); err != nil {
		return nil, err
	}
	if err := q.readTools(b); err != nil {
		return nil, err
	}
	if err := q.readThinking(b); err != nil {
		return nil, err
	}
	return q, q.settings.Check()
}

func (q *request) readThinking(b body) error {
	if b.OutputConfig != nil && b.OutputConfig.Effort != "" {
		q.conversation.Effort = b.OutputConfig.Effort
	}
	if b.Thinking == nil {
		return nil
	}
	on := b.Thinking.Type == "enabled"
	switch b.Thinking.Type {
	case "enabled", "disabled":
		q.conversation.Thinking = &on
	case "adaptive": // the model decides: so does its template
	default:
		return bad(contract.InvalidArgument, "thinking.type", "%q is not enabled, disabled or adaptive", b.Thinking.Type)
	}
	if b.Thinking.Budget != nil {
		q.notes = append(q.notes, "thinking.budget_tokens: a thought counts against max_tokens, and has no bound of its own")
	}
	return nil
}

func (q *request) readTools(b body) error {
	var list []any
	for i, t := range b.Tools {
		where := fmt.Sprintf("tools[%d]", i)
		if t.Type != "" && t.Type != "custom" {
			return bad(contract.UnsupportedOption, where+".type", "%q runs on a server; only the client's own tools are supported", t.Type)
		}
		if t.Name == "" {
			return bad(contract.InvalidArgument, where+".name", "is missing")
		}
		function := chat.NewObject()
		function.Set("name", t.Name)
		if t.Description != nil {
			function.Set("description", *t.Description)
		}
		if len(t.InputSchema) > 0 {
			function.Set("parameters", t.InputSchema)
		}
		if t.Strict != nil {
			function.Set("strict", *t.Strict)
		}
		item := chat.NewObject()
		item.Set("type", "function")
		item.Set("function", function)
		list = append(list, item)
	}
	choice := toolChoice{Type: "auto"}
	if b.ToolChoice != nil {
		choice = *b.ToolChoice
	}
	q.oneCall = choice.OnlyOne
	switch choice.Type {
	case "none":
		return nil
	case "auto", "any", "tool":
	default:
		return bad(contract.InvalidArgument, "tool_choice.type", "%q is not auto, any, tool or none", choice.Type)
	}
	forced := choice.Type != "auto"
	if len(list) == 0 {
		if forced {
			return bad(contract.InvalidArgument, "tool_choice", "needs tools")
		}
		return nil
	}
	tools, err := json.Marshal(list)
	if err != nil {
		return bad(contract.InvalidArgument, "tools", "%w", err)
	}
	q.conversation.Tools = tools
	if _, err := toolcall.NewTools(tools); err != nil || !forced {
		return err
	}
	if (choice.Type == "tool") != (choice.Name != "") {
		return bad(contract.InvalidArgument, "tool_choice.name", "goes with the type tool")
	}
	q.forced, q.conversation.Held = choice.Name, true
	if choice.Type == "any" {
		q.forced = generate.AnyTool
	}
	return nil
}

func (q *request) readMessages(b body) error {
	if len(b.System) > 0 && string(b.System) != "null" {
		blocks, err := readBlocks("system", b.System)
		if err != nil {
			return err
		}
		var parts []string
		for i, p := range blocks {
			if p.Type != "text" || p.Text == nil {
				return bad(contract.UnsupportedOption, fmt.Sprintf("system[%d].type", i), "only text is supported")
			}
			parts = append(parts, *p.Text)
		}
		if len(parts) > 0 {
			q.say(map[string]any{"role": "system", "content": strings.Join(parts, "\n\n")})
		}
	}
	for i, m := range b.Messages {
		where := fmt.Sprintf("messages[%d]", i)
		blocks, err := readBlocks(where+".content", m.Content)
		if err != nil {
			return err
		}
		switch m.Role {
		case "user":
			err = q.user(where+".content", blocks)
		case "assistant":
			err = q.assistant(where+".content", blocks)
		default:
			err = bad(contract.InvalidArgument, where+".role", "%q is not user or assistant", m.Role)
		}
		if err != nil {
			return err
		}
	}
	if b.Messages[len(b.Messages)-1].Role == "assistant" {
		return bad(contract.UnsupportedOption, fmt.Sprintf("messages[%d]", len(b.Messages)-1), "an answer that is begun cannot be continued; end with a user's message")
	}
	return nil
}

func (q *request) say(m map[string]any) {
	q.conversation.Messages = append(q.conversation.Messages, m)
}

// readBlocks reads content: a text, or a list of blocks.
func readBlocks(where string, raw json.RawMessage) ([]block, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return []block{{Type: "text", Text: &text}}, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil || items == nil {
		return nil, bad(contract.InvalidArgument, where, "want a text or a list of blocks")
	}
	out := make([]block, len(items))
	for i, item := range items {
		here := fmt.Sprintf("%s[%d]", where, i)
		var kind struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(item, &kind); err != nil {
			return nil, bad(contract.InvalidArgument, here, "want an object with a type")
		}
		switch kind.Type {
		case "text", "tool_use", "tool_result", "thinking":
		default:
			return nil, bad(contract.UnsupportedOption, here+".type", "a block of type %q is not supported", kind.Type)
		}
		if err := strict(here, item, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// user gives results of tools and texts as messages, in their order.
func (q *request) user(where string, blocks []block) error {
	var texts []string
	flush := func() {
		if len(texts) > 0 {
			q.say(map[string]any{"role": "user", "content": strings.Join(texts, "\n\n")})
			texts = nil
		}
	}
	for i, b := range blocks {
		here := fmt.Sprintf("%s[%d]", where, i)
		switch {
		case b.Type == "text" && b.Text != nil:
			texts = append(texts, *b.Text)
		case b.Type == "tool_result" && b.ToolUseID != "":
			flush()
			text, err := resultText(here+".content", b)
			if err != nil {
				return err
			}
			q.say(map[string]any{"role": "tool", "tool_call_id": b.ToolUseID, "content": text})
		default:
			return bad(contract.InvalidArgument, here, "a %s block of a user is not complete, or not a user's", b.Type)
		}
	}
	flush()
	return nil
}

// resultText is what a tool gave. Templates have no place for is_error, so the text says it.
func resultText(where string, b block) (string, error) {
	var parts []string
	if len(b.Content) > 0 && string(b.Content) != "null" {
		blocks, err := readBlocks(where, b.Content)
		if err != nil {
			return "", err
		}
		for i, p := range blocks {
			if p.Type != "text" || p.Text == nil {
				return "", bad(contract.UnsupportedOption, fmt.Sprintf("%s[%d].type", where, i), "only text is supported")
			}
			parts = append(parts, *p.Text)
		}
	}
	text := strings.Join(parts, "\n")
	if b.IsError && !strings.HasPrefix(strings.ToLower(text), "error") {
		text = "Error: " + text
	}
	return text, nil
}

func (q *request) assistant(where string, blocks []block) error {
	var texts, thoughts []string
	var calls []any
	for i, b := range blocks {
		switch {
		case b.Type == "text" && b.Text != nil:
			texts = append(texts, *b.Text)
		case b.Type == "thinking" && b.Thinking != nil:
			thoughts = append(thoughts, *b.Thinking)
		case b.Type == "tool_use" && b.Name != "" && b.ID != "":
			input := string(b.Input)
			if input == "" || input == "null" {
				input = "{}"
			}
			calls = append(calls, openai.PastCall(b.ID, b.Name, input))
		default:
			return bad(contract.InvalidArgument, fmt.Sprintf("%s[%d]", where, i), "a %s block of an assistant is not complete, or not an assistant's", b.Type)
		}
	}
	m := map[string]any{"role": "assistant", "content": strings.Join(texts, "\n\n")}
	if len(thoughts) > 0 {
		m["reasoning_content"] = strings.Join(thoughts, "\n\n")
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	q.say(m)
	return nil
}
