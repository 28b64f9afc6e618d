package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALineThatChangesWithEveryRequestIsLeftOut(t *testing.T) {
	system := func(text string) Conversation {
		return Conversation{Messages: []map[string]any{{"role": "system", "content": text}, {"role": "user", "content": "x-anthropic-billing-header: is what?"}}}
	}
	header := "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=%s;"
	for name, tt := range map[string]struct{ text, want string }{
		"a block before others": {header + "\n\nYou are an agent.\nBe brief.", "You are an agent.\nBe brief."},
		"the first line":        {header + "\nYou are an agent.", "You are an agent."},
		"a later line":          {"You are an agent.\n" + header + "\nBe brief.", "You are an agent.\nBe brief."},
		"the last line":         {"You are an agent.\n" + header, "You are an agent.\n"},
		"not a line of its own": {"Say x-anthropic-billing-header: 1", "Say x-anthropic-billing-header: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			given := system(strings.Replace(tt.text, "%s", "eb6c6", 1))
			c, names := given.Stable()
			require.Equal(t, tt.want, c.Messages[0]["content"])
			require.Equal(t, given.Messages[1], c.Messages[1], "what a user says stays")
			if strings.Contains(tt.text, "cch") {
				require.Equal(t, []string{"x-anthropic-billing-header"}, names)
				require.Contains(t, given.Messages[0]["content"], "eb6c6", "the client's own is not changed")
				other, _ := system(strings.Replace(tt.text, "%s", "0aaa9", 1)).Stable()
				require.Equal(t, c, other)
			} else {
				require.Empty(t, names)
			}
		})
	}
	c, names := system(fmt.Sprintf(header, "1")).Stable()
	require.Len(t, c.Messages, 1, "nothing else was in it")
	require.Len(t, names, 1)
}
