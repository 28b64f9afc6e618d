package tokenizer

import (
	"encoding/json"
	"slices"
	"strconv"
)

// config is what a tokenizer's side files say: tokenizer_config.json and special_tokens_map.json, or the same facts from GGUF
// metadata.
type config struct {
	specials     map[string]string // texts by name
	named        []addedEntry      // special tokens, by name or not, which become added tokens where the vocabulary has them
	eosIDs       []int32           // GGUF names ids
	chatTemplate string
	hasTemplate  bool
	toolTemplate string // of the name tool_use
	added        []configAdded
}

type configAdded struct {
	addedEntry
	id int64
}

// parseConfig reads tokenizer_config.json and special_tokens_map.json, either of which may be empty.
func parseConfig(data, specialMap []byte) (*config, error) {
	c := &config{specials: map[string]string{}}
	raw, err := sideFile(configFile, data)
	if err != nil {
		return nil, err
	}
	_, modern := raw["added_tokens_decoder"]
	names := newNamedTokens(configFile)
	if err := names.read(raw); err != nil {
		return nil, err
	}
	// As transformers does: files since added_tokens_decoder exists say everything in tokenizer_config.json; before, the map
	// counts more.
	if !modern {
		legacy, err := sideFile(specialsFile, specialMap)
		if err != nil {
			return nil, err
		}
		names.subject, names.special = specialsFile, true
		if err := names.read(legacy); err != nil {
			return nil, err
		}
	}
	names.enter(c)
	if err := c.template(configFile, raw["chat_template"]); err != nil {
		return nil, err
	}
	return c, c.addedTokens(raw["added_tokens_decoder"])
}

func sideFile(name string, data []byte) (map[string]json.RawMessage, error) {
	if len(data) == 0 {
		return nil, nil
	}
	if len(data) > maxJSONBytes {
		return nil, corrupt(name, "is %d bytes, more than the limit of %d", len(data), maxJSONBytes)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, corrupt(name, "is not an object: %w", err)
	}
	return raw, nil
}

// Names of templates, where a file has several.
const (
	defaultTemplate = "default"
	toolTemplate    = "tool_use"
)

// template reads a template that is a string or a list of named ones, of which "default" is the model's and "tool_use" the one of
// conversations with tools.
func (c *config) template(subject string, raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	if raw[0] == '"' {
		c.hasTemplate = true
		return json.Unmarshal(raw, &c.chatTemplate)
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return corrupt(subject+": chat_template", "is neither a string nor a list of named templates: %w", err)
	}
	for _, n := range named {
		c.choose(n.Name, n.Template)
	}
	return nil
}

func (c *config) choose(name, template string) {
	switch name {
	case defaultTemplate:
		c.chatTemplate, c.hasTemplate = template, true
	case toolTemplate:
		c.toolTemplate = template
	}
}

func (c *config) addedTokens(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	var entries map[string]addedEntry
	if err := json.Unmarshal(raw, &entries); err != nil {
		return corrupt(configFile+": added_tokens_decoder", "is not a map from id to token: %w", err)
	}
	for key, e := range entries {
		id, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return corrupt(configFile+": added_tokens_decoder", "%q is not an id", key)
		}
		c.added = append(c.added, configAdded{e, id})
	}
	slices.SortFunc(c.added, func(a, b configAdded) int { return int(a.id - b.id) })
	return nil
}

// applyConfig resolves the named tokens.
func (t *Tokenizer) applyConfig(c *config) error {
	t.specials, t.chatTemplate, t.hasTemplate, t.toolTemplate = c.specials, c.chatTemplate, c.hasTemplate, c.toolTemplate
	t.eos = c.eosIDs
	if len(t.eos) == 0 {
		id, err := t.named("eos_token")
		if err != nil {
			return err
		}
		if id >= 0 {
			t.eos = []int32{id}
		}
	}
	var err error
	t.bos, err = t.named("bos_token")
	return err
}

// named is the id of a special token, -1 when the files name none.
func (t *Tokenizer) named(name string) (int32, error) {
	text, ok := t.specials[name]
	if !ok {
		return -1, nil
	}
	id, ok := t.ID(text)
	if !ok {
		return -1, corrupt(configFile+": "+name, "%q is not in the vocabulary", text)
	}
	return id, nil
}
