package family

import (
	"fmt"
	"maps"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
)

// Dialect says how a family's config.json is read into canonical keys, in this order: the first object of From is copied
// ("$" is the file itself), Rename moves keys, Defaults fill what is absent, Derive adds what follows, Require checks.
// model_type always comes from the file itself, after the record's remaps.
type Dialect struct {
	From     []string          `yaml:"from,omitempty" json:"from,omitempty"`
	Rename   map[string]string `yaml:"rename,omitempty" json:"rename,omitempty"`
	Defaults map[string]any    `yaml:"defaults,omitempty" json:"defaults,omitempty"`
	Derive   []Rule            `yaml:"derive,omitempty" json:"derive,omitempty"`
	Require  []Require         `yaml:"require,omitempty" json:"require,omitempty"`
	// Types adds to the dialect what one model type has for itself: by the file's name of it, and by that after the record's remaps. Of
	// renames, defaults and rules the type's go before the record's, of requirements after.
	Types map[string]*TypeDialect `yaml:"types,omitempty" json:"types,omitempty"`
	// Inspect is true when these rules cannot express the config and the plugin parses it.
	Inspect bool `yaml:"inspect,omitempty" json:"inspect,omitempty"`
}

// TypeDialect is what one model type of a record has beside the record's dialect.
type TypeDialect struct {
	Rename   map[string]string `yaml:"rename,omitempty" json:"rename,omitempty"`
	Defaults map[string]any    `yaml:"defaults,omitempty" json:"defaults,omitempty"`
	Derive   []Rule            `yaml:"derive,omitempty" json:"derive,omitempty"`
	Require  []Require         `yaml:"require,omitempty" json:"require,omitempty"`
}

// parts are the pieces that read a config of one type, in their order.
func (r *Record) parts(cfg artifact.Config) []TypeDialect {
	var out []TypeDialect
	stored, _ := cfg.Lookup(modelTypeKey)
	if name, ok := stored.(string); ok {
		for _, name := range slices.Compact([]string{name, r.Remap(name)}) {
			if own := r.Config.Types[name]; own != nil {
				out = append(out, *own)
			}
		}
	}
	d := &r.Config
	return append(out, TypeDialect{d.Rename, d.Defaults, d.Derive, d.Require})
}

// Rule derives the canonical key To. Which of the other fields it reads depends on Rule; see rules.
type Rule struct {
	Rule    string   `yaml:"rule" json:"rule"`
	To      string   `yaml:"to" json:"to"`
	Paths   []string `yaml:"paths,omitempty" json:"paths,omitempty"`
	Value   any      `yaml:"value,omitempty" json:"value,omitempty"`
	Pattern []any    `yaml:"pattern,omitempty" json:"pattern,omitempty"`
	Last    any      `yaml:"last,omitempty" json:"last,omitempty"`
	At      any      `yaml:"at,omitempty" json:"at,omitempty"`
	Else    any      `yaml:"else,omitempty" json:"else,omitempty"`
	Count   string   `yaml:"count,omitempty" json:"count,omitempty"`
	Every   string   `yaml:"every,omitempty" json:"every,omitempty"`
	Offset  string   `yaml:"offset,omitempty" json:"offset,omitempty"`
	When    string   `yaml:"when,omitempty" json:"when,omitempty"`
}

// layerLimit bounds the lists that rules make.
const layerLimit = 4096

// ruleForm is one named rule: the fields it needs, and what it computes. It returns nil for "leave To as it is" and an
// error that names the path at fault.
type ruleForm struct {
	needs []string
	apply func(r *Rule, v view) (any, error)
}

// rules is the closed list.
//
//	first        the first present value of Paths, else Value
//	ints         the same, a single integer made a list
//	union        the ordered union of the integers and lists of Paths
//	sum          the sum of the integers at Paths
//	divide       Paths[0] / Paths[1], floored; only when To is absent
//	repeat       Pattern repeated to the length at Count, its last element forced to Last; only when To is absent
//	interval     a list of the length at Count: At where max(i-Offset+1, 0) is a multiple of Every, Else elsewhere; only
//	             when To is absent (Offset 0 when not named)
//	fill         a list of the length at Count, all Value; only when To is absent
//	letters      a list of the length at Count: the text at Paths[0] repeated, At for its letter Value, Else for any other; only
//	             when To is absent and the text is there
//	zero_unless  0 unless the boolean at When is true
//	objects      the object at Paths[0] without the members that are not objects
var rules map[string]ruleForm

func init() {
	rules = map[string]ruleForm{
		"first":       {[]string{"paths"}, applyFirst},
		"ints":        {[]string{"paths"}, applyInts},
		"union":       {[]string{"paths"}, applyUnion},
		"sum":         {[]string{"paths"}, applySum},
		"divide":      {[]string{"paths"}, applyDivide},
		"repeat":      {[]string{"pattern", "count"}, applyRepeat},
		"interval":    {[]string{"count", "every", "at", "else"}, applyInterval},
		"fill":        {[]string{"count", "value"}, applyFill},
		"letters":     {[]string{"paths", "count", "value", "at", "else"}, applyLetters},
		"zero_unless": {[]string{"when"}, applyZeroUnless},
		"objects":     {[]string{"paths"}, applyObjects},
	}
}

func (d *Dialect) check() error {
	if len(d.From) == 0 {
		d.From = []string{"text_config", "$"}
	}
	if err := (&TypeDialect{d.Rename, d.Defaults, d.Derive, d.Require}).check("config"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(d.Types)) {
		if d.Types[name] == nil {
			return fmt.Errorf("config.types.%s: is empty", name)
		}
		if err := d.Types[name].check("config.types." + name); err != nil {
			return err
		}
	}
	return nil
}

func (d *TypeDialect) check(at string) error {
	for key, v := range d.Defaults {
		n, err := normal(v)
		if err != nil {
			return fmt.Errorf("%s.defaults.%s: %w", at, key, err)
		}
		d.Defaults[key] = n
	}
	for i := range d.Derive {
		if err := d.Derive[i].check(); err != nil {
			return fmt.Errorf("%s.derive[%d]: %w", at, i, err)
		}
	}
	for i := range d.Require {
		if err := d.Require[i].check(); err != nil {
			return fmt.Errorf("%s.require[%d]: %w", at, i, err)
		}
	}
	return nil
}

func (r *Rule) check() error {
	form, ok := rules[r.Rule]
	if !ok {
		return fmt.Errorf("rule %q is unknown, want one of %v", r.Rule, slices.Sorted(maps.Keys(rules)))
	}
	if r.To == "" {
		return fmt.Errorf("rule %s: to: is empty", r.Rule)
	}
	for _, v := range []*any{&r.Value, &r.Last, &r.At, &r.Else} {
		n, err := normal(*v)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.Rule, err)
		}
		*v = n
	}
	pattern, err := normal(r.Pattern)
	if err != nil {
		return fmt.Errorf("rule %s: %w", r.Rule, err)
	}
	r.Pattern, _ = pattern.([]any)
	set := map[string]bool{
		"paths": len(r.Paths) > 0, "pattern": len(r.Pattern) > 0, "count": r.Count != "", "every": r.Every != "",
		"at": r.At != nil, "else": r.Else != nil, "value": r.Value != nil, "when": r.When != "",
	}
	for _, need := range form.needs {
		if !set[need] {
			return fmt.Errorf("rule %s to %s: %s: is missing", r.Rule, r.To, need)
		}
	}
	if r.Rule == "divide" && len(r.Paths) != 2 || (r.Rule == "objects" || r.Rule == "letters") && len(r.Paths) != 1 {
		return fmt.Errorf("rule %s to %s: wrong number of paths", r.Rule, r.To)
	}
	if letter, ok := r.Value.(string); r.Rule == "letters" && (!ok || len(letter) != 1) {
		return fmt.Errorf("rule %s to %s: value: want one letter", r.Rule, r.To)
	}
	return nil
}

func (r *Rule) first(v view) any {
	for _, p := range r.Paths {
		if got := v.at(p); got != nil {
			return got
		}
	}
	return r.Value
}

func applyFirst(r *Rule, v view) (any, error) { return r.first(v), nil }

func applyInts(r *Rule, v view) (any, error) {
	got := r.first(v)
	if got == nil {
		return nil, nil
	}
	return asInts(r.To, got)
}

func asInts(path string, v any) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		if _, ok := e.(int64); !ok {
			return nil, &fieldError{path, fmt.Sprintf("holds %s where an integer belongs", show(e))}
		}
	}
	return list, nil
}

func applyUnion(r *Rule, v view) (any, error) {
	out := []any{}
	for _, p := range r.Paths {
		got := v.at(p)
		if got == nil {
			continue
		}
		list, err := asInts(p, got)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out, nil
}

func applySum(r *Rule, v view) (any, error) {
	total := int64(0)
	for _, p := range r.Paths {
		n, err := v.size(p)
		if err != nil {
			return nil, err
		}
		total += n
	}
	return total, nil
}

func applyDivide(r *Rule, v view) (any, error) {
	if v.at(r.To) != nil {
		return nil, nil
	}
	a, err := v.size(r.Paths[0])
	if err != nil {
		return nil, err
	}
	b, err := v.size(r.Paths[1])
	if err != nil {
		return nil, err
	}
	if b == 0 {
		return nil, &fieldError{r.Paths[1], "is 0"}
	}
	return a / b, nil
}

func applyRepeat(r *Rule, v view) (any, error) {
	return r.layers(v, func(i, n int64) (any, error) {
		if r.Last != nil && i == n-1 {
			return r.Last, nil
		}
		return r.Pattern[i%int64(len(r.Pattern))], nil
	})
}

func applyFill(r *Rule, v view) (any, error) {
	return r.layers(v, func(_, _ int64) (any, error) { return r.Value, nil })
}

func applyInterval(r *Rule, v view) (any, error) {
	return r.layers(v, func(i, _ int64) (any, error) {
		every, err := v.size(r.Every)
		if err != nil {
			return nil, err
		}
		if every == 0 {
			return nil, &fieldError{r.Every, "is 0"}
		}
		offset := int64(0)
		if r.Offset != "" {
			if offset, err = v.size(r.Offset); err != nil {
				return nil, err
			}
		}
		if max(i-offset+1, 0)%every == 0 {
			return r.At, nil
		}
		return r.Else, nil
	})
}

func applyLetters(r *Rule, v view) (any, error) {
	text, ok := v.at(r.Paths[0]).(string)
	if !ok || text == "" {
		return nil, nil
	}
	return r.layers(v, func(i, _ int64) (any, error) {
		if text[i%int64(len(text))] == fmt.Sprint(r.Value)[0] {
			return r.At, nil
		}
		return r.Else, nil
	})
}

func (r *Rule) layers(v view, layer func(i, n int64) (any, error)) (any, error) {
	if v.at(r.To) != nil {
		return nil, nil
	}
	n, err := v.size(r.Count)
	if err != nil {
		return nil, err
	}
	if n > layerLimit {
		return nil, &fieldError{r.Count, fmt.Sprintf("is %d, the limit is %d", n, layerLimit)}
	}
	out := make([]any, n)
	for i := range out {
		if out[i], err = layer(int64(i), n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func applyZeroUnless(r *Rule, v view) (any, error) {
	if on, _ := v.at(r.When).(bool); on {
		return nil, nil
	}
	return int64(0), nil
}

func applyObjects(r *Rule, v view) (any, error) {
	got := v.at(r.Paths[0])
	if got == nil {
		return nil, nil
	}
	m, ok := got.(map[string]any)
	if !ok {
		return nil, &fieldError{r.Paths[0], "is not an object"}
	}
	out := map[string]any{}
	for k, e := range m {
		if _, ok := e.(map[string]any); ok {
			out[k] = e
		}
	}
	return out, nil
}

// fieldError is a config value that a rule cannot use.
type fieldError struct{ path, why string }

func (e *fieldError) Error() string { return e.path + ": " + e.why }

// sizeLimit bounds integers that rules compute with, so that no sum or product overflows.
const sizeLimit = 1 << 40

// size reads a non-negative integer.
func (v view) size(path string) (int64, error) {
	switch n := v.at(path).(type) {
	case nil:
		return 0, &fieldError{path, "is missing"}
	case int64:
		if n < 0 || n > sizeLimit {
			return 0, &fieldError{path, fmt.Sprintf("is %d, want 0 to %d", n, int64(sizeLimit))}
		}
		return n, nil
	default:
		return 0, &fieldError{path, fmt.Sprintf("is %s, want an integer", show(n))}
	}
}
