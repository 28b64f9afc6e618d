package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// path is what jinja2's attribute arguments name: a key, an index, or several joined by points.
func (r *rendering) path(v, by jinja.Value) (jinja.Value, error) {
	parts := []jinja.Value{by}
	if by.IsString() {
		parts = nil
		for part := range strings.SplitSeq(by.AsString(), ".") {
			if n, err := strconv.ParseInt(part, 10, 32); err == nil {
				parts = append(parts, jinja.NewInt(n))
			} else {
				parts = append(parts, jinja.NewString(part))
			}
		}
	}
	var err error
	for _, part := range parts {
		if v, err = r.item([]jinja.Value{v, part}, nil); err != nil {
			return v, err
		}
	}
	return v, nil
}

// order compares as Python does, texts by case only if asked.
func order(a, b jinja.Value, sensitive bool) (int, error) {
	x, isX := numberOf(a)
	y, isY := numberOf(b)
	switch {
	case isX && isY:
		return compareFloats(x.f, y.f), nil
	case a.IsString() && b.IsString() && !sensitive:
		return strings.Compare(strings.ToLower(a.AsString()), strings.ToLower(b.AsString())), nil
	case a.IsString() && b.IsString():
		return strings.Compare(a.AsString(), b.AsString()), nil
	case a.IsList() && b.IsList():
		p, q := a.AsList().Items, b.AsList().Items
		for i := range min(len(p), len(q)) {
			if n, err := order(p[i], q[i], sensitive); n != 0 || err != nil {
				return n, err
			}
		}
		return len(p) - len(q), nil
	}
	return 0, fmt.Errorf("%s and %s have no order", pythonType(a), pythonType(b))
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sorted sorts items by a key, stably.
func (r *rendering) sorted(items []jinja.Value, by jinja.Value, sensitive, reverse bool) ([]jinja.Value, error) {
	type keyed struct{ key, item jinja.Value }
	list := make([]keyed, len(items))
	for i, item := range items {
		list[i] = keyed{item, item}
		if !by.IsUndefined() && !by.IsNone() {
			key, err := r.path(item, by)
			if err != nil {
				return nil, err
			}
			list[i].key = key
		}
	}
	var failed error
	slices.SortStableFunc(list, func(a, b keyed) int {
		n, err := order(a.key, b.key, sensitive)
		if err != nil {
			failed = err
		}
		if reverse {
			return -n
		}
		return n
	})
	out := make([]jinja.Value, len(list))
	for i, k := range list {
		out[i] = k.item
	}
	return out, failed
}

func filterSort(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	out, err := r.sorted(items, c.get(3, "attribute"), c.truth(2, "case_sensitive"), c.truth(1, "reverse"))
	return jinja.NewList(out), err
}

func filterUnique(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	seen := map[string]bool{}
	var out []jinja.Value
	for _, item := range items {
		key := item
		if by := c.get(2, "attribute"); !by.IsUndefined() {
			if key, err = r.path(item, by); err != nil {
				return jinja.Undefined(), err
			}
		}
		var b strings.Builder
		if err := writeValue(&b, key, true, 0); err != nil {
			return jinja.Undefined(), err
		}
		name := b.String()
		if !c.truth(1, "case_sensitive") {
			name = strings.ToLower(name)
		}
		if !seen[name] {
			seen[name] = true
			out = append(out, item)
		}
	}
	return jinja.NewList(out), nil
}

func filterDictsort(r *rendering, c call) (jinja.Value, error) {
	pairs, err := filterItems(r, c)
	if err != nil {
		return pairs, err
	}
	by := jinja.NewInt(0)
	if c.text(2, "by", "key") == "value" {
		by = jinja.NewInt(1)
	}
	out, err := r.sorted(pairs.AsList().Items, by, c.truth(1, "case_sensitive"), c.truth(3, "reverse"))
	return jinja.NewList(out), err
}

func filterGroupby(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	by := c.get(1, "attribute")
	if items, err = r.sorted(items, by, c.truth(3, "case_sensitive"), false); err != nil {
		return jinja.Undefined(), err
	}
	var out []jinja.Value
	for i := 0; i < len(items); {
		key, err := r.path(items[i], by)
		if err != nil {
			return jinja.Undefined(), err
		}
		group := []jinja.Value{items[i]}
		for i++; i < len(items); i++ {
			next, err := r.path(items[i], by)
			if err != nil {
				return jinja.Undefined(), err
			}
			if n, err := order(key, next, c.truth(3, "case_sensitive")); n != 0 || err != nil {
				break
			}
			group = append(group, items[i])
		}
		out = append(out, jinja.NewList([]jinja.Value{key, jinja.NewList(group)}))
	}
	return jinja.NewList(out), nil
}

func filterBatch(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	size := c.whole(1, "linecount", 0)
	if err != nil || size < 1 || size > maxRange {
		return jinja.Undefined(), fmt.Errorf("batch wants lists of 1 to %d elements", maxRange)
	}
	var out []jinja.Value
	for chunk := range slices.Chunk(items, int(size)) {
		chunk = slices.Clone(chunk)
		for fill := c.get(2, "fill_with"); !fill.IsUndefined() && !fill.IsNone() && len(chunk) < int(size); {
			chunk = append(chunk, fill)
		}
		out = append(out, jinja.NewList(chunk))
	}
	return jinja.NewList(out), nil
}

func filterSlice(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	n := int(c.whole(1, "slices", 0))
	if err != nil || n < 1 || n > maxRange {
		return jinja.Undefined(), fmt.Errorf("slice wants 1 to %d slices", maxRange)
	}
	var out []jinja.Value
	for i, at := 0, 0; i < n; i++ {
		size := len(items) / n
		if i < len(items)%n {
			size++
		}
		part := slices.Clone(items[at : at+size])
		if fill := c.get(2, "fill_with"); !fill.IsUndefined() && !fill.IsNone() && i >= len(items)%n {
			part = append(part, fill)
		}
		at += size
		out = append(out, jinja.NewList(part))
	}
	return jinja.NewList(out), nil
}

func filterMap(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		if by, ok := c.kwargs["attribute"]; ok {
			out[i], err = r.path(item, by)
			if d, has := c.kwargs["default"]; has && out[i].IsUndefined() {
				out[i] = d
			}
		} else if len(c.args) < 2 || !c.args[1].IsString() {
			return jinja.Undefined(), fmt.Errorf("map wants a filter or an attribute")
		} else {
			out[i], err = r.apply(c.args[1].AsString(), call{append([]jinja.Value{item}, c.args[2:]...), c.kwargs})
		}
		if err != nil {
			return jinja.Undefined(), err
		}
	}
	return r.list(out)
}

func filterAttr(r *rendering, c call) (jinja.Value, error) {
	return r.attribute([]jinja.Value{c.args[0], jinja.NewString(c.text(1, "name", ""))}, nil)
}

// selecting makes select, reject and their forms that look at an attribute.
func selecting(keep, byAttribute bool) filter {
	return func(r *rendering, c call) (jinja.Value, error) {
		items, err := r.elements(c.args[0])
		if err != nil {
			return jinja.Undefined(), err
		}
		rest := c.args[1:]
		var by jinja.Value
		if byAttribute {
			if len(rest) == 0 {
				return jinja.Undefined(), fmt.Errorf("an attribute is missing")
			}
			by, rest = rest[0], rest[1:]
		}
		var out []jinja.Value
		for _, item := range items {
			subject := item
			if byAttribute {
				if subject, err = r.path(item, by); err != nil {
					return jinja.Undefined(), err
				}
			}
			hit := subject.IsTruthy()
			if len(rest) > 0 && rest[0].IsString() {
				if hit, err = runTest(rest[0].AsString(), append([]jinja.Value{subject}, rest[1:]...)); err != nil {
					return jinja.Undefined(), err
				}
			}
			if hit == keep {
				out = append(out, item)
			}
		}
		return jinja.NewList(out), nil
	}
}

func filterInt(_ *rendering, c call) (jinja.Value, error) {
	otherwise := c.get(1, "default")
	if otherwise.IsUndefined() {
		otherwise = jinja.NewInt(0)
	}
	v := c.args[0]
	if n, ok := numberOf(v); ok {
		if n.whole {
			return jinja.NewInt(n.i), nil
		}
		if math.IsNaN(n.f) || math.Abs(n.f) >= math.MaxInt64 {
			return otherwise, nil
		}
		return jinja.NewInt(int64(n.f)), nil
	}
	if !v.IsString() {
		return otherwise, nil
	}
	s := strings.ReplaceAll(strings.TrimFunc(v.AsString(), pythonSpace), "_", "")
	base := int(c.whole(2, "base", 10))
	for prefix, of := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if base == of {
			s = strings.TrimPrefix(strings.ToLower(s), prefix)
		}
	}
	if n, err := strconv.ParseInt(s, base, 64); err == nil {
		return jinja.NewInt(n), nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < math.MaxInt64 {
		return jinja.NewInt(int64(f)), nil
	}
	return otherwise, nil
}

func filterFloat(_ *rendering, c call) (jinja.Value, error) {
	otherwise := c.get(1, "default")
	if otherwise.IsUndefined() {
		otherwise = jinja.NewFloat(0)
	}
	if n, ok := numberOf(c.args[0]); ok {
		return jinja.NewFloat(n.f), nil
	}
	if c.args[0].IsString() {
		if f, err := strconv.ParseFloat(strings.TrimFunc(c.args[0].AsString(), pythonSpace), 64); err == nil {
			return jinja.NewFloat(f), nil
		}
	}
	return otherwise, nil
}

func filterAbs(_ *rendering, c call) (jinja.Value, error) {
	n, ok := numberOf(c.args[0])
	switch {
	case !ok:
		return jinja.Undefined(), fmt.Errorf("abs of %s", pythonType(c.args[0]))
	case n.whole && n.i < 0:
		return jinja.NewInt(-n.i), nil
	case n.whole:
		return jinja.NewInt(n.i), nil
	}
	return jinja.NewFloat(math.Abs(n.f)), nil
}

func filterSum(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	total := c.get(2, "start")
	if total.IsUndefined() {
		total = jinja.NewInt(0)
	}
	for _, item := range items {
		if by := c.get(1, "attribute"); !by.IsUndefined() && !by.IsNone() {
			if item, err = r.path(item, by); err != nil {
				return jinja.Undefined(), err
			}
		}
		if total, err = r.operate(total, "+", item); err != nil {
			return jinja.Undefined(), err
		}
	}
	return total, nil
}

func filterMin(r *rendering, c call) (jinja.Value, error) { return r.extreme(c, -1) }
func filterMax(r *rendering, c call) (jinja.Value, error) { return r.extreme(c, 1) }

func (r *rendering) extreme(c call, sign int) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil || len(items) == 0 {
		return jinja.Undefined(), err
	}
	items, err = r.sorted(items, c.get(2, "attribute"), c.truth(1, "case_sensitive"), sign > 0)
	if err != nil {
		return jinja.Undefined(), err
	}
	return items[0], nil
}
