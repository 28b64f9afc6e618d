package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// leadingKeys is the order in which a message's or a tool's own keys reach a template that prints the whole of it, as
// clients write them; a Go map has no order. Objects within keep their own order.
var leadingKeys = []string{"type", "role", "content", "function", "name", "description", "parameters"}

// toValue converts what JSON can hold.
func toValue(v any, depth int) (jinja.Value, error) {
	if depth > maxDepth {
		return jinja.Undefined(), fmt.Errorf("a value is nested more than %d deep", maxDepth)
	}
	switch x := v.(type) {
	case *Object:
		return toDict(x.keys, x.values, depth)
	case map[string]any:
		return toDict(orderedKeys(x), x, depth)
	case []map[string]any:
		return toList(x, depth)
	case []any:
		return toList(x, depth)
	case []string:
		return toList(x, depth)
	case json.Number:
		return toNumber(x), nil
	case nil, bool, int, int64, float64, string:
		return jinja.FromGoValue(v), nil
	}
	return jinja.Undefined(), fmt.Errorf("a value of Go type %T cannot reach a template", v)
}

func toList[T any](items []T, depth int) (jinja.Value, error) {
	values := make([]jinja.Value, len(items))
	for i, item := range items {
		var err error
		if values[i], err = toValue(item, depth+1); err != nil {
			return jinja.Undefined(), err
		}
	}
	return jinja.NewList(values), nil
}

func toDict(keys []string, values map[string]any, depth int) (jinja.Value, error) {
	d := jinja.NewDict()
	for _, k := range keys {
		v, err := toValue(values[k], depth+1)
		if err != nil {
			return jinja.Undefined(), err
		}
		d.AsDict().Set(k, v)
	}
	return d, nil
}

func toNumber(n json.Number) jinja.Value {
	if i, err := n.Int64(); err == nil && !strings.ContainsAny(string(n), ".eE") {
		return jinja.NewInt(i)
	}
	f, err := n.Float64()
	if err != nil && f == 0 {
		return jinja.NewString(string(n))
	}
	return jinja.NewFloat(f)
}

func orderedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	rank := func(k string) int {
		if i := slices.Index(leadingKeys, k); i >= 0 {
			return i
		}
		return len(leadingKeys)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			return ra - rb
		}
		return strings.Compare(a, b)
	})
	return keys
}
