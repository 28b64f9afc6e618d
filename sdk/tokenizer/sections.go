package tokenizer

import (
	"encoding/json"
	"slices"
)

// The sections of tokenizer.json that tell a library to cut or fill texts. transformers turns both off unless a call asks for
// them, so Encode does nothing of the kind; a section that nobody could read is refused like any other.

type truncationSpec struct {
	Direction *string `json:"direction"`
	MaxLength *int64  `json:"max_length"`
	Strategy  *string `json:"strategy"`
	Stride    *int64  `json:"stride"`
}

func checkTruncation(path string, raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	var v truncationSpec
	if err := component(path, raw, &v); err != nil {
		return err
	}
	if err := oneOf(path+".direction", v.Direction, true, "Left", "Right"); err != nil {
		return err
	}
	if err := oneOf(path+".strategy", v.Strategy, false, "LongestFirst", "OnlyFirst", "OnlySecond"); err != nil {
		return err
	}
	if err := count(path+".max_length", v.MaxLength, false); err != nil {
		return err
	}
	return count(path+".stride", v.Stride, false)
}

type paddingSpec struct {
	Strategy        json.RawMessage `json:"strategy"`
	Direction       *string         `json:"direction"`
	PadToMultipleOf *int64          `json:"pad_to_multiple_of"`
	PadID           *int64          `json:"pad_id"`
	PadTypeID       *int64          `json:"pad_type_id"`
	PadToken        *string         `json:"pad_token"`
}

// padding checks the section and, where the side files name no pad_token, takes its name from there, as transformers does.
func (c *config) padding(path string, raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	var v paddingSpec
	if err := component(path, raw, &v); err != nil {
		return err
	}
	if err := paddingStrategy(path+".strategy", v.Strategy); err != nil {
		return err
	}
	if err := oneOf(path+".direction", v.Direction, false, "Left", "Right"); err != nil {
		return err
	}
	for _, n := range []struct {
		name     string
		value    *int64
		optional bool
	}{
		{"pad_to_multiple_of", v.PadToMultipleOf, true}, {"pad_id", v.PadID, false}, {"pad_type_id", v.PadTypeID, false},
	} {
		if err := count(path+"."+n.name, n.value, n.optional); err != nil {
			return err
		}
	}
	if v.PadToken == nil {
		return corrupt(at(path+".pad_token"), "is missing")
	}
	if _, ok := c.specials["pad_token"]; !ok {
		c.specials["pad_token"] = *v.PadToken
		c.named = append(c.named, addedEntry{Content: *v.PadToken, Special: true})
	}
	return nil
}

// paddingStrategy is "BatchLongest" or {"Fixed": length}.
func paddingStrategy(path string, raw json.RawMessage) error {
	if isKind(raw, '{') {
		var v struct{ Fixed *int64 }
		if err := component(path, raw, &v); err != nil {
			return err
		}
		return count(path+".Fixed", v.Fixed, false)
	}
	var name *string
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &name); err != nil {
			return corrupt(at(path), "cannot be read: %w", err)
		}
	}
	return oneOf(path, name, false, "BatchLongest")
}

func oneOf(path string, value *string, optional bool, known ...string) error {
	switch {
	case value == nil && optional:
		return nil
	case value == nil:
		return corrupt(at(path), "is missing")
	case !slices.Contains(known, *value):
		return corrupt(at(path), "is %q, want one of %q", *value, known)
	}
	return nil
}

// count checks a number that is not negative and fits what `tokenizers` keeps it in.
func count(path string, value *int64, optional bool) error {
	switch {
	case value == nil && optional:
		return nil
	case value == nil:
		return corrupt(at(path), "is missing")
	case *value < 0:
		return corrupt(at(path), "is %d, want 0 or more", *value)
	}
	return nil
}
