package chat

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// volatile are lines of system prompts that clients write for somebody else than the model, and that change with every request: each
// would part a conversation from its own last turn within the first tokens. Only what is no instruction and tells the model nothing
// stands here; docs/deviations.md has the list with what is deliberately not on it.
var volatile = []struct {
	name string
	line *regexp.Regexp
}{
	// Claude Code's accounting: cc_version=...; cc_entrypoint=...; cch=..., the last a hash of the whole request. It is sent as a
	// block of its own, or, through proxies, as the first line of one text.
	{"x-anthropic-billing-header", regexp.MustCompile(`(?m)^x-anthropic-billing-header:[^\n]*(?:\n+|\z)`)},
}

// Stable is the conversation without the lines of its system messages that change with every request, and the names of what was left
// out. A message with nothing else is left out too.
func (c Conversation) Stable() (Conversation, []string) {
	var names []string
	messages := slices.Clone(c.Messages)
	for i, m := range messages {
		text, ok := m["content"].(string)
		if !ok || m["role"] != "system" {
			continue
		}
		for _, v := range volatile {
			if strings.Contains(text, v.name) && v.line.MatchString(text) {
				text = v.line.ReplaceAllString(text, "")
				names = append(names, v.name)
			}
		}
		if text != m["content"] {
			messages[i] = maps.Clone(m)
			messages[i]["content"] = text
		}
	}
	if len(names) == 0 {
		return c, nil
	}
	c.Messages = slices.DeleteFunc(messages, func(m map[string]any) bool { return m["role"] == "system" && m["content"] == "" })
	return c, slices.Compact(names)
}
