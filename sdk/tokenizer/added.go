package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// AddedToken is an entry of added_tokens.
type AddedToken struct {
	ID         int32
	Content    string
	SingleWord bool
	LStrip     bool
	RStrip     bool
	Normalized bool
	Special    bool
}

// trie finds added tokens: leftmost, then longest.
type trie struct {
	nodes  []trieNode
	first  [256]bool
	tokens []AddedToken
}

type trieNode struct {
	edges []trieEdge
	token int32 // index into tokens, -1 for none
}

type trieEdge struct {
	b    byte
	node int32
}

func newTrie() *trie { return &trie{nodes: []trieNode{{token: -1}}} }

// add enters a token under the text that stands for it. A text entered twice keeps the first token.
func (t *trie) add(text string, tok AddedToken) {
	if text == "" {
		return
	}
	at := int32(0)
	for i := range len(text) {
		next := t.child(at, text[i])
		if next < 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{token: -1})
			t.nodes[at].edges = append(t.nodes[at].edges, trieEdge{text[i], next})
		}
		at = next
	}
	t.first[text[0]] = true
	if t.nodes[at].token < 0 {
		t.nodes[at].token = int32(len(t.tokens))
		t.tokens = append(t.tokens, tok)
	}
}

func (t *trie) child(node int32, b byte) int32 {
	for _, e := range t.nodes[node].edges {
		if e.b == b {
			return e.node
		}
	}
	return -1
}

// find is the first match in s at or after from.
func (t *trie) find(s string, from int) (start, end int, tok *AddedToken) {
	for i := from; i < len(s); i++ {
		if !t.first[s[i]] {
			continue
		}
		node, found := int32(0), int32(-1)
		for j := i; j < len(s); j++ {
			if node = t.child(node, s[j]); node < 0 {
				break
			}
			if t.nodes[node].token >= 0 {
				found, end = t.nodes[node].token, j+1
			}
		}
		if found >= 0 {
			return i, end, &t.tokens[found]
		}
	}
	return 0, 0, nil
}

// cut calls text for what lies between added tokens and token for each of them, in order. A token with lstrip or rstrip
// takes the whitespace beside it; one with single_word is not a token where it touches a word. first is as in step.
func (t *trie) cut(s string, first bool, text yield, token func(id int32) error) error {
	done := 0
	for from := 0; len(t.tokens) > 0; {
		start, end, tok := t.find(s, from)
		if tok == nil {
			break
		}
		from = end
		if tok.SingleWord && (endsWithWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		if tok.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], isSpace)), done)
		}
		if tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			if err := text(s[done:start], first && done == 0); err != nil {
				return err
			}
		}
		if err := token(tok.ID); err != nil {
			return err
		}
		done = end
	}
	if done < len(s) {
		return text(s[done:], first && done == 0)
	}
	return nil
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && classes().of(r)&word != 0
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && classes().of(r)&word != 0
}
