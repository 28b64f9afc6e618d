package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

type modelSpec struct {
	Type                    *string         `json:"type"`
	Dropout                 *float64        `json:"dropout"`
	UnkToken                *string         `json:"unk_token"`
	ContinuingSubwordPrefix *string         `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string         `json:"end_of_word_suffix"`
	FuseUnk                 bool            `json:"fuse_unk"`
	ByteFallback            bool            `json:"byte_fallback"`
	IgnoreMerges            bool            `json:"ignore_merges"`
	Vocab                   json.RawMessage `json:"vocab"`
	Merges                  json.RawMessage `json:"merges"`
}

func parseModel(raw json.RawMessage) (*bpe, error) {
	if absent(raw) {
		return nil, corrupt(at("model"), "is missing")
	}
	var probe struct {
		Type   string          `json:"type"`
		Merges json.RawMessage `json:"merges"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return nil, corrupt(at("model"), "cannot be read: %w", err)
	}
	// Files from before 0.9 name no type; only BPE has merges.
	if probe.Type != "BPE" && (probe.Type != "" || probe.Merges == nil) {
		return nil, unsupported(at("model"), "the model type %q is not implemented; BPE is", probe.Type)
	}
	var spec modelSpec
	if err := component("model", raw, &spec); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"dropout", spec.Dropout != nil && *spec.Dropout != 0},
		{"continuing_subword_prefix", spec.ContinuingSubwordPrefix != nil && *spec.ContinuingSubwordPrefix != ""},
		{"end_of_word_suffix", spec.EndOfWordSuffix != nil && *spec.EndOfWordSuffix != ""},
	} {
		if o.set {
			return nil, unsupported(at("model."+o.name), "is set, which is not implemented")
		}
	}
	return spec.build()
}

func (spec *modelSpec) build() (*bpe, error) {
	m := &bpe{unk: -1, fuseUnk: spec.FuseUnk, byteFallback: spec.ByteFallback, ignoreMerges: spec.IgnoreMerges}
	if err := m.vocab(spec.Vocab); err != nil {
		return nil, err
	}
	pairs, err := mergePairs(spec.Merges)
	if err != nil {
		return nil, err
	}
	if err := m.setMerges(pairs, at("model.merges")); err != nil {
		return nil, err
	}
	if spec.UnkToken != nil {
		if m.unk = m.id(*spec.UnkToken); m.unk < 0 {
			return nil, corrupt(at("model.unk_token"), "%q is not in the vocabulary", *spec.UnkToken)
		}
	}
	return m, nil
}

// vocab reads the object token -> id by hand: a map would hide a token that is there twice.
func (m *bpe) vocab(raw json.RawMessage) error {
	const path = "model.vocab"
	c := cursor{b: raw}
	if !c.take('{') {
		return corrupt(at(path), "is not an object")
	}
	m.ids = make(map[string]int32, len(raw)/20)
	for n := 0; !c.take('}'); n++ {
		if n > 0 {
			c.take(',')
		}
		token, err := c.string()
		if err != nil {
			return corrupt(at(path), "%w", err)
		}
		c.take(':')
		id, err := c.int()
		if err != nil {
			return corrupt(at(path), "the id of %q: %w", token, err)
		}
		if err := m.setToken(at(path), token, id); err != nil {
			return err
		}
	}
	if len(m.ids) == 0 {
		return corrupt(at(path), "is empty")
	}
	return nil
}

// setToken enters a token of the vocabulary.
func (m *bpe) setToken(subject, token string, id int64) error {
	if _, ok := m.ids[token]; ok {
		return corrupt(subject, "the token %q is there twice", token)
	}
	if err := m.place(subject, token, id); err != nil {
		return err
	}
	m.ids[token] = int32(id)
	return nil
}

// place puts a token at its id.
func (m *bpe) place(subject, token string, id int64) error {
	if id < 0 || id >= maxVocab {
		return corrupt(subject, "the id %d of %q is outside [0, %d)", id, token, maxVocab)
	}
	if len(token) > maxTokenBytes {
		return corrupt(subject, "the token of id %d is %d bytes, more than the limit of %d", id, len(token), maxTokenBytes)
	}
	if n := int(id) + 1 - len(m.tokens); n > 0 {
		m.tokens = append(m.tokens, make([]string, n)...)
	}
	if old := m.tokens[id]; old != "" && old != token {
		return corrupt(subject, "the id %d belongs to both %q and %q", id, old, token)
	}
	m.tokens[id] = token
	return nil
}

// mergePairs reads merges as "a b" strings or as pairs.
func mergePairs(raw json.RawMessage) ([][2]string, error) {
	const path = "model.merges"
	c := cursor{b: raw}
	if !c.take('[') {
		return nil, corrupt(at(path), "is not a list")
	}
	var pairs [][2]string
	for n := 0; !c.take(']'); n++ {
		if n > 0 {
			c.take(',')
		}
		subject := at(path + "[" + strconv.Itoa(n) + "]")
		if n >= maxMerges {
			return nil, corrupt(subject, "there are more merges than the limit of %d", maxMerges)
		}
		if c.take('[') {
			a, err := c.string()
			if err != nil {
				return nil, corrupt(subject, "%w", err)
			}
			c.take(',')
			b, err := c.string()
			if err != nil || !c.take(']') {
				return nil, corrupt(subject, "is not a pair of tokens")
			}
			pairs = append(pairs, [2]string{a, b})
			continue
		}
		line, err := c.string()
		if err != nil {
			return nil, corrupt(subject, "%w", err)
		}
		if strings.HasPrefix(line, "#version") {
			continue
		}
		pair, err := splitMerge(line)
		if err != nil {
			return nil, corrupt(subject, "%w", err)
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

func splitMerge(line string) ([2]string, error) {
	a, b, ok := strings.Cut(line, " ")
	if !ok || strings.Contains(b, " ") {
		return [2]string{}, fmt.Errorf("%q is not two tokens with one space between them", line)
	}
	return [2]string{a, b}, nil
}

// setMerges ranks the pairs by their order. A pair that is there twice takes the later rank, as in `tokenizers`.
func (m *bpe) setMerges(pairs [][2]string, subject string) error {
	m.merges = newMergeTable(len(pairs))
	buf := make([]byte, 0, 64)
	for rank, p := range pairs {
		a, b := m.id(p[0]), m.id(p[1])
		buf = append(append(buf[:0], p[0]...), p[1]...)
		id, ok := m.ids[string(buf)]
		if a < 0 || b < 0 || !ok {
			missing := p[0]
			switch {
			case a < 0:
			case b < 0:
				missing = p[1]
			default:
				missing = string(buf)
			}
			return corrupt(fmt.Sprintf("%s[%d]", subject, rank), "%q with %q: %q is not in the vocabulary", p[0], p[1], missing)
		}
		m.merges.put(a, b, merge{int32(rank), id})
	}
	return nil
}
