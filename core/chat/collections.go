package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ardanlabs/jinja"
)

// listMethods and dictMethods are Python's. Those that change their value are forbidden in transformers' sandbox; templates
// written for other programs use some, and they are allowed here on the rendering's own values.
var (
	listMethods = map[string]bool{"append": true, "extend": true, "insert": true, "pop": true, "index": true, "count": true, "copy": true}
	dictMethods = map[string]bool{
		"items": true, "keys": true, "values": true, "get": true, "copy": true, "pop": true, "update": true, "setdefault": true,
	}
)

func (r *rendering) listMethod(list *jinja.List, name string, c call) (jinja.Value, error) {
	if len(c.args) == 0 && name != "pop" && name != "copy" {
		return jinja.Undefined(), fmt.Errorf("%s() wants an argument", name)
	}
	if err := r.charge(valueBytes); err != nil {
		return jinja.Undefined(), err
	}
	switch name {
	case "append":
		list.Append(c.args[0])
	case "extend":
		more, err := r.elements(c.args[0])
		list.Items = append(list.Items, more...)
		return jinja.None(), err
	case "insert":
		at := c.whole(0, "", 0)
		if at < 0 {
			at += int64(list.Len())
		}
		if len(c.args) < 2 {
			return jinja.Undefined(), errors.New("insert() wants a place and a value")
		}
		list.Items = slices.Insert(list.Items, int(min(max(at, 0), int64(list.Len()))), c.args[1])
	case "pop":
		i, ok := index(c.whole(0, "", -1), list.Len())
		if !ok {
			return jinja.Undefined(), errors.New("pop from a place that a list has not")
		}
		v := list.Items[i]
		list.Items = slices.Delete(list.Items, i, i+1)
		return v, nil
	case "copy":
		return r.list(slices.Clone(list.Items))
	case "index":
		i := slices.IndexFunc(list.Items, func(v jinja.Value) bool { return equal(v, c.args[0]) })
		if i < 0 {
			return jinja.Undefined(), errors.New("the value is not in the list")
		}
		return jinja.NewInt(int64(i)), nil
	case "count":
		n := int64(0)
		for _, v := range list.Items {
			if equal(v, c.args[0]) {
				n++
			}
		}
		return jinja.NewInt(n), nil
	}
	return jinja.None(), nil
}

func (r *rendering) dictMethod(d *jinja.Dict, name string, c call) (jinja.Value, error) {
	key := c.get(0, "key")
	switch name {
	case "get":
		if v, ok := d.Get(printed(key)); ok && key.IsString() {
			return v, nil
		}
		if v := c.get(1, "default"); !v.IsUndefined() {
			return v, nil
		}
		return jinja.None(), nil
	case "pop", "setdefault":
		return changeDict(d, name, key, c)
	case "update":
		if key.IsDict() {
			for _, k := range key.AsDict().Keys {
				d.Set(k, key.AsDict().Data[k])
			}
		}
		return jinja.None(), r.spread(key)
	}
	items := make([]jinja.Value, 0, d.Len())
	copied := jinja.NewDict()
	for _, k := range d.Keys {
		switch name {
		case "items":
			items = append(items, jinja.NewList([]jinja.Value{jinja.NewString(k), d.Data[k]}))
		case "keys":
			items = append(items, jinja.NewString(k))
		case "values":
			items = append(items, d.Data[k])
		default:
			copied.AsDict().Set(k, d.Data[k])
		}
	}
	if name == "copy" {
		return copied, r.spread(copied)
	}
	return jinja.NewList(items), r.charge(3 * len(items) * valueBytes)
}

func changeDict(d *jinja.Dict, name string, key jinja.Value, c call) (jinja.Value, error) {
	v, ok := d.Get(printed(key))
	otherwise := c.get(1, "default")
	if name == "setdefault" {
		if ok {
			return v, nil
		}
		if otherwise.IsUndefined() {
			otherwise = jinja.None()
		}
		d.Set(printed(key), otherwise)
		return otherwise, nil
	}
	switch {
	case ok:
		delete(d.Data, printed(key))
		d.Keys = slices.DeleteFunc(slices.Clone(d.Keys), func(k string) bool { return k == printed(key) })
		return v, nil
	case otherwise.IsUndefined():
		return otherwise, fmt.Errorf("pop of the key %s, which is not there", printed(key))
	}
	return otherwise, nil
}
