package chat

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Looking into values, as jinja2 does: what is not there is undefined; looking into what is undefined is an error.

// attribute is a.name: a method where Python's type has one, else the item of that name.
func (r *rendering) attribute(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	of, name := args[0], args[1].AsString()
	switch {
	case of.IsUndefined():
		return jinja.Undefined(), fmt.Errorf("%q of a value that is undefined", name)
	case of.IsDict():
		v, ok := of.AsDict().Get(name)
		if ok && !dictMethods[name] {
			return v, nil
		}
		if dictMethods[name] {
			return r.bound(of, name), nil
		}
	case of.IsString() && stringMethods[name] != nil, of.IsList() && listMethods[name]:
		return r.bound(of, name), nil
	}
	return jinja.Undefined(), nil
}

// bound is a method that is looked at but not called.
func (r *rendering) bound(of jinja.Value, name string) jinja.Value {
	return jinja.NewCallable(name, func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
		return r.method(append([]jinja.Value{of, jinja.NewString(name)}, args...), kwargs)
	})
}

// item is a[key].
func (r *rendering) item(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	of, key := args[0], args[1]
	switch {
	case of.IsUndefined():
		return jinja.Undefined(), fmt.Errorf("item %s of a value that is undefined", printed(key))
	case of.IsDict():
		if v, ok := of.AsDict().Get(printed(key)); ok {
			return v, nil
		}
		if key.IsString() && dictMethods[key.AsString()] {
			return r.bound(of, key.AsString()), nil
		}
	case of.IsList() && key.IsInt():
		items := of.AsList().Items
		if i, ok := index(key.AsInt(), len(items)); ok {
			return items[i], nil
		}
	case of.IsString() && key.IsInt():
		return characterAt(of.AsString(), key.AsInt()), nil
	}
	return jinja.Undefined(), nil
}

// index counts from the end if it is negative.
func index(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

// characterAt counts characters without making a list of them; ASCII before the place is skipped at once.
func characterAt(s string, at int64) jinja.Value {
	n := utf8.RuneCountInString(s)
	i, ok := index(at, n)
	if !ok {
		return jinja.Undefined()
	}
	if n == len(s) {
		return jinja.NewString(s[i : i+1])
	}
	for range i {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	_, size := utf8.DecodeRuneInString(s)
	return jinja.NewString(s[:size])
}

// slice is a[start:stop:step].
func (r *rendering) slice(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	of := args[0]
	bounds := [3]*int64{}
	for i, a := range args[1:] {
		switch {
		case a.IsNone():
		case a.IsInt():
			n := a.AsInt()
			bounds[i] = &n
		default:
			return jinja.Undefined(), fmt.Errorf("a slice by %s", pythonType(a))
		}
	}
	switch {
	case of.IsList():
		items := of.AsList().Items
		if err := r.spread(of); err != nil {
			return jinja.Undefined(), err
		}
		at, err := places(bounds, len(items))
		out := make([]jinja.Value, 0, at.n)
		for i, n := at.start, 0; n < at.n; i, n = i+at.step, n+1 {
			out = append(out, items[i])
		}
		return jinja.NewList(out), err
	case of.IsString():
		return r.sliceString(of.AsString(), bounds)
	case of.IsUndefined():
		return jinja.Undefined(), errors.New("a slice of a value that is undefined")
	}
	return jinja.Undefined(), nil
}

func (r *rendering) sliceString(s string, bounds [3]*int64) (jinja.Value, error) {
	n := utf8.RuneCountInString(s)
	at, err := places(bounds, n)
	if err != nil || at.n == 0 {
		return jinja.NewString(""), err
	}
	if n == len(s) && at.step == 1 {
		return jinja.NewString(s[at.start : at.start+at.n]), nil
	}
	if err := r.charge(4 * len(s)); err != nil {
		return jinja.Undefined(), err
	}
	runes := []rune(s)
	out := make([]rune, 0, at.n)
	for i, k := at.start, 0; k < at.n; i, k = i+at.step, k+1 {
		out = append(out, runes[i])
	}
	return r.text(string(out))
}

type stride struct{ start, step, n int }

// places are the elements that a slice takes of n, by Python's rules.
func places(bounds [3]*int64, n int) (stride, error) {
	step := int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return stride{}, errors.New("the step of a slice is zero")
	}
	step = min(max(step, -int64(n)-1), int64(n)+1)
	low, high := int64(0), int64(n)
	start, stop := low, high
	if step < 0 {
		low, high = -1, int64(n)-1
		start, stop = high, low
	}
	clamp := func(v int64) int64 {
		if v < 0 {
			v += int64(n)
		}
		return min(max(v, low), high)
	}
	if bounds[0] != nil {
		start = clamp(*bounds[0])
	}
	if bounds[1] != nil {
		stop = clamp(*bounds[1])
	}
	count := (stop - start + step - 1) / step
	if step < 0 {
		count = (stop - start + step + 1) / step
	}
	return stride{int(start), int(step), int(max(count, 0))}, nil
}

// iterate is what a loop goes over; each of its elements is unpacked to so many names.
func (r *rendering) iterate(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	v, names := args[0], int(args[1].AsInt())
	if err := r.spread(v); err != nil {
		return v, err
	}
	switch {
	case v.IsUndefined(), v.IsString(), v.IsDict():
		if names > 1 && !v.IsUndefined() {
			return v, fmt.Errorf("the elements of %s cannot be unpacked", pythonType(v))
		}
		return v, nil
	case v.IsList():
		for _, item := range v.AsList().Items {
			if names > 1 && (!item.IsList() || item.AsList().Len() != names) {
				return v, fmt.Errorf("an element cannot be unpacked to %d names", names)
			}
		}
		return v, nil
	}
	return v, fmt.Errorf("%s is not iterable", pythonType(v))
}
