package loader

import (
	"slices"

	"github.com/clademl/clade/core/chat"
)

const (
	// restorePoints is an option of a plugin that keeps what earlier requests computed of their beginnings.
	restorePoints = "restore_points"
	// borderGap is how many tokens lie between two borders at least: nearer ones are not worth a restore point of their own.
	borderGap = 4
	// maxBorders bounds those of one request: the first ones, and the last.
	maxBorders, firstBorders = 256, 16
	// lastMessages is how many of the last messages' ends are found by rendering the conversation up to there.
	lastMessages = 4
)

// borders are positions in a prompt's ids at which another request may part from this one: the ends of messages, in ascending order. A
// token that ends a turn marks one wherever it stands. Those of the first message and of the last few are found by rendering the
// conversation that ends there, too: a template may write no such token.
func (m *Model) borders(c chat.Conversation, o chat.RenderOptions, ids []int32) []uint32 {
	if !m.honours(restorePoints) {
		return nil
	}
	var at []int
	for i, id := range ids {
		if slices.Contains(m.stopIDs, id) && m.text.tokenizer.IsSpecial(id) {
			at = append(at, i+1)
		}
	}
	o.AddGenerationPrompt = false
	n := len(c.Messages)
	for k := 1; k <= n; k++ {
		if k > 1 && k < n+1-lastMessages {
			continue
		}
		begun, err := m.text.render(c.Messages[:k], o)
		if err != nil {
			continue // no conversation that the template takes
		}
		if head, err := m.text.encode(begun, false); err == nil {
			at = append(at, alike(ids, head))
		}
	}
	return spread(at, len(ids))
}

// alike is how many ids a and b begin with alike.
func alike(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// spread sorts positions within n ids and leaves those out that the next one follows closely, and the middle ones of too many.
func spread(at []int, n int) []uint32 {
	slices.Sort(at)
	var out []uint32
	for _, p := range slices.Backward(at) {
		if p > 0 && p <= n && (len(out) == 0 || int(out[len(out)-1])-p >= borderGap) {
			out = append(out, uint32(p))
		}
	}
	slices.Reverse(out)
	if len(out) > maxBorders {
		out = slices.Delete(out, firstBorders, firstBorders+len(out)-maxBorders)
	}
	return out
}
