package tokenizer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// specialNames are the names transformers gives to templates, in its order. Any other key that ends in _token names a token of
// the model's own, such as image_token.
var specialNames = []string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
}

// The keys that hold several tokens: a list of them, or an object with their names.
const (
	extraKey      = "extra_special_tokens"
	additionalKey = "additional_special_tokens" // extra_special_tokens before transformers 5
	ownKey        = "model_specific_special_tokens"
)

// namedTokens collects the special tokens of one side file after the other; the later one counts.
type namedTokens struct {
	subject string // the file
	special bool   // an object is special even if it does not say so
	byName  map[string]*addedEntry
	own     map[string]*addedEntry // of objects; these win over keys that end in _token
	lists   map[string][]addedEntry
}

func newNamedTokens(subject string) *namedTokens {
	return &namedTokens{subject: subject, byName: map[string]*addedEntry{}, own: map[string]*addedEntry{}, lists: map[string][]addedEntry{}}
}

func (n *namedTokens) read(raw map[string]json.RawMessage) error {
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		var err error
		switch value := raw[key]; {
		case key == extraKey || key == additionalKey || key == ownKey:
			err = n.several(key, value)
		case slices.Contains(specialNames, key):
			n.byName[key], err = n.token(key, value)
		case strings.HasSuffix(key, "_token") && (isKind(value, '"') || isKind(value, '{')):
			// add_bos_token and its like are no tokens.
			n.byName[key], err = n.token(key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isKind(raw json.RawMessage, first byte) bool { return len(raw) > 0 && raw[0] == first }

func (n *namedTokens) several(key string, raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	if isKind(raw, '{') {
		var named map[string]json.RawMessage
		if err := json.Unmarshal(raw, &named); err != nil {
			return corrupt(n.subject+": "+key, "%w", err)
		}
		for name, value := range named {
			var err error
			if n.own[name], err = n.token(key+"."+name, value); err != nil {
				return err
			}
		}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return corrupt(n.subject+": "+key, "is neither a list of tokens nor an object of named ones: %w", err)
	}
	if key != extraKey || n.subject != specialsFile {
		n.lists[key] = nil // the map's extra_special_tokens add to those of tokenizer_config.json, all else replaces
	}
	for _, value := range list {
		e, err := n.token(key, value)
		if err != nil {
			return err
		}
		if e != nil {
			n.lists[key] = append(n.lists[key], *e)
		}
	}
	return nil
}

// token reads a token that is a string, an AddedToken object or null.
func (n *namedTokens) token(key string, raw json.RawMessage) (*addedEntry, error) {
	if absent(raw) {
		return nil, nil
	}
	e := &addedEntry{Special: true}
	if isKind(raw, '"') {
		if err := json.Unmarshal(raw, &e.Content); err != nil {
			return nil, corrupt(n.subject+": "+key, "%w", err)
		}
		return e, nil
	}
	var v struct {
		addedEntry
		Content    *string `json:"content"`
		Normalized *bool   `json:"normalized"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, corrupt(n.subject+": "+key, "%w", err)
	}
	if v.Content == nil {
		return nil, nil
	}
	*e = v.addedEntry
	e.Content = *v.Content
	e.Special = e.Special || n.special
	e.Normalized = choose(v.Normalized, !e.Special)
	return e, nil
}

// enter gives the tokens to c: the standard ones, those of the model's own, then the unnamed ones.
func (n *namedTokens) enter(c *config) {
	maps.Copy(n.byName, n.own)
	names := slices.Clone(specialNames)
	for _, name := range slices.Sorted(maps.Keys(n.byName)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if e := n.byName[name]; e != nil {
			c.specials[name] = e.Content
			named := *e
			named.Special = true
			c.named = append(c.named, named)
		}
	}
	list := n.lists[extraKey]
	if len(list) == 0 {
		list = n.lists[additionalKey]
	}
	c.named = append(c.named, list...)
}
