package chat

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Object is a JSON object that keeps the order of its keys.
type Object struct {
	keys   []string
	values map[string]any
}

// NewObject is an empty Object.
func NewObject() *Object { return &Object{values: map[string]any{}} }

// Set enters a value; a new key goes last, a known one keeps its place.
func (o *Object) Set(key string, value any) {
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

// Get finds a value.
func (o *Object) Get(key string) (any, bool) {
	v, ok := o.values[key]
	return v, ok
}

// Keys are the keys in order.
func (o *Object) Keys() []string { return slices.Clone(o.keys) }

// MarshalJSON writes the keys in order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, v := range []any{k, o.values[k]} {
			if j == 1 {
				b.WriteByte(':')
			}
			data, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			b.Write(data)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
