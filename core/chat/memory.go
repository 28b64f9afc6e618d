package chat

import (
	"runtime"
	"runtime/metrics"

	"github.com/ardanlabs/jinja"
)

// Memory of a rendering. Every value that is larger than what it was made from is made by one of our functions, which refuse one
// of more than maxOutput bytes before they make it and charge it here. Each time a rendering was charged checkEvery bytes, the
// process's live memory is looked at: a rendering may drop any amount, it may not hold more than maxHeld.
const (
	valueBytes = 40 // of a jinja.Value in a list
	charBytes  = 48 // of a string's character made a value
	maxCharge  = 256 << 20
	checkEvery = 32 << 20
	maxHeld    = 512 << 20
)

const heapMetric = "/memory/classes/heap/objects:bytes"

// heapBytes is what the process holds on its heap, garbage that is not swept yet included.
func heapBytes() uint64 {
	s := []metrics.Sample{{Name: heapMetric}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}

// charge counts bytes that are about to be held.
func (r *rendering) charge(bytes int) error {
	if bytes > maxCharge {
		return r.fail("asks for a value of more than %d bytes", maxCharge)
	}
	r.charged += bytes
	if r.charged < checkEvery {
		return nil
	}
	r.charged = 0
	if r.failed.Load() != nil {
		return r.failed.Load()
	}
	if r.base == 0 {
		r.base = heapBytes()
		return nil
	}
	if heapBytes() < r.base+maxHeld {
		return nil
	}
	runtime.GC()
	if heapBytes() < r.base+maxHeld {
		return nil
	}
	return r.fail("holds more than %d bytes", maxHeld)
}

// text is a string that was made.
func (r *rendering) text(s string) (jinja.Value, error) {
	if len(s) > maxOutput {
		return jinja.Undefined(), r.fail("asks for a value of more than %d bytes", maxOutput)
	}
	return jinja.NewString(s), r.charge(len(s))
}

// list is a list that was made.
func (r *rendering) list(items []jinja.Value) (jinja.Value, error) {
	return jinja.NewList(items), r.charge(len(items) * valueBytes)
}

// spread charges what a value becomes when each of its elements is looked at.
func (r *rendering) spread(v jinja.Value) error {
	switch {
	case v.IsString():
		return r.charge(len(v.AsString()) * charBytes)
	case v.IsList():
		return r.charge(v.AsList().Len() * valueBytes)
	case v.IsDict():
		return r.charge(v.AsDict().Len() * valueBytes)
	}
	return nil
}
