package artifact

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// configLimit is the largest config.json read. Configs with a quantization entry for each module stay under 2 MB.
const configLimit = 16 << 20

// Config is a JSON object tree with exact numbers: integers are int64, all else float64. The zero Config is empty.
type Config struct {
	name string
	root map[string]any
}

// ParseConfig reads a JSON object strictly. name is the file that errors speak about.
func ParseConfig(name string, data []byte) (Config, error) {
	if len(data) > configLimit {
		return Config{}, corrupt(name, "", "%d bytes, the limit is %d", len(data), configLimit)
	}
	r := &jsonReader{buf: data}
	v, err := r.value()
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return Config{}, corrupt(name, "", "not valid JSON: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return Config{}, corrupt(name, "", "holds %s where an object belongs", kindOf(v))
	}
	return Config{name: name, root: root}, nil
}

// NewConfig is a Config over a tree of the types that Lookup documents. The tree must not change afterwards.
func NewConfig(name string, tree map[string]any) Config { return Config{name: name, root: tree} }

// Name is the file the config came from.
func (c Config) Name() string { return c.name }

// Empty says whether there is no key at all.
func (c Config) Empty() bool { return len(c.root) == 0 }

// Map is the tree itself; callers must not change it.
func (c Config) Map() map[string]any { return c.root }

// Lookup finds a dotted path. Values are string, bool, int64, float64, nil, []any or map[string]any. A path element that
// is a number indexes a list. A key that itself holds dots is reached through Map.
func (c Config) Lookup(path string) (any, bool) {
	var node any = c.root
	for rest := path; rest != ""; {
		key, tail, _ := strings.Cut(rest, ".")
		rest = tail
		switch v := node.(type) {
		case map[string]any:
			next, ok := v[key]
			if !ok {
				return nil, false
			}
			node = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			node = v[i]
		default:
			return nil, false
		}
	}
	return node, true
}

// Sub is the object at path; false when it is absent or not an object.
func (c Config) Sub(path string) (Config, bool) {
	v, _ := c.Lookup(path)
	m, ok := v.(map[string]any)
	return Config{name: c.name, root: m}, ok
}

// Int reads an integer. A missing or null value gives false and no error.
func (c Config) Int(path string) (int64, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return 0, false, nil
	case int64:
		return v, true, nil
	}
	return 0, false, c.wrongType(path, "an integer", v)
}

// Float reads a number. A missing or null value gives false and no error.
func (c Config) Float(path string) (float64, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return 0, false, nil
	case int64:
		return float64(v), true, nil
	case float64:
		return v, true, nil
	}
	return 0, false, c.wrongType(path, "a number", v)
}

// String reads a string. A missing or null value gives false and no error.
func (c Config) String(path string) (string, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	}
	return "", false, c.wrongType(path, "a string", v)
}

// Bool reads a boolean. A missing or null value gives false and no error.
func (c Config) Bool(path string) (bool, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return false, false, nil
	case bool:
		return v, true, nil
	}
	return false, false, c.wrongType(path, "true or false", v)
}

// Ints reads a list of integers; a single integer reads as a list of one, as eos_token_id is written both ways.
func (c Config) Ints(path string) ([]int64, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return nil, false, nil
	case int64:
		return []int64{v}, true, nil
	case []any:
		out := make([]int64, len(v))
		for i, e := range v {
			n, ok := e.(int64)
			if !ok {
				return nil, false, c.wrongType(fmt.Sprintf("%s[%d]", path, i), "an integer", e)
			}
			out[i] = n
		}
		return out, true, nil
	}
	return nil, false, c.wrongType(path, "a list of integers", v)
}

// Strings reads a list of strings.
func (c Config) Strings(path string) ([]string, bool, error) {
	v, _ := c.Lookup(path)
	switch v := v.(type) {
	case nil:
		return nil, false, nil
	case []any:
		out := make([]string, len(v))
		for i, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false, c.wrongType(fmt.Sprintf("%s[%d]", path, i), "a string", e)
			}
			out[i] = s
		}
		return out, true, nil
	}
	return nil, false, c.wrongType(path, "a list of strings", v)
}

func (c Config) wrongType(path, want string, got any) error {
	return contract.Errorf(contract.ArtifactCorrupt, subject(c.name, path), "is %s, want %s", kindOf(got), want)
}

// kindOf names a value's type, and the value when it is short.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", clip(v))
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return string(appendFloat(nil, v))
	case []any:
		return "a list"
	}
	return "an object"
}

// MarshalJSON writes the tree with sorted keys; integers stay integers, integral floats keep ".0", and floats that JSON
// cannot write are tagged, so that ParseConfig reads back an equal tree.
func (c Config) MarshalJSON() ([]byte, error) {
	if c.root == nil {
		return []byte("{}"), nil
	}
	return appendValue(nil, c.root)
}

// Decode fills v, a pointer to a struct or map, as encoding/json would.
func (c Config) Decode(v any) error {
	data, err := c.MarshalJSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return corrupt(c.name, "", "does not fit: %w", err)
	}
	return nil
}

func appendValue(out []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		out = append(out, '{')
		for i, k := range keys {
			if i > 0 {
				out = append(out, ',')
			}
			name, err := json.Marshal(k)
			if err != nil {
				return nil, err
			}
			out = append(append(out, name...), ':')
			if out, err = appendValue(out, v[k]); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			var err error
			if out, err = appendValue(out, e); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case float64:
		return appendFloat(out, v), nil
	case int64:
		return strconv.AppendInt(out, v, 10), nil
	}
	data, err := json.Marshal(v)
	return append(out, data...), err
}

func appendFloat(out []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(out, `{"`+floatTag+`":"NaN"}`...)
	case math.IsInf(f, 1):
		return append(out, `{"`+floatTag+`":"Infinity"}`...)
	case math.IsInf(f, -1):
		return append(out, `{"`+floatTag+`":"-Infinity"}`...)
	}
	start := len(out)
	out = strconv.AppendFloat(out, f, 'g', -1, 64)
	if !strings.ContainsAny(string(out[start:]), ".e") {
		out = append(out, ".0"...)
	}
	return out
}
