package artifact

import (
	"fmt"
	"math"

	"github.com/clademl/clade/sdk/contract"
)

// Fields reads a config and keeps the first error, so that what a graph takes from it reads as a list. A field of the wrong kind or
// out of range is ArtifactCorrupt naming it; an absent one is zero.
type Fields struct {
	config Config
	err    error
}

// Fields begins to read the config.
func (c Config) Fields() *Fields { return &Fields{config: c} }

// Err is the first error.
func (f *Fields) Err() error { return f.err }

// Corrupt says what is wrong with a field.
func (f *Fields) Corrupt(path, format string, args ...any) {
	if f.err == nil {
		f.err = contract.Errorf(contract.ArtifactCorrupt, f.config.Name()+": "+path, format, args...)
	}
}

// Unsupported says what of a field is not computed.
func (f *Fields) Unsupported(path, format string, args ...any) {
	if f.err == nil {
		f.err = contract.Errorf(contract.UnsupportedModel, f.config.Name()+": "+path, format, args...)
	}
}

func keep[T any](f *Fields) func(v T, _ bool, err error) T {
	return func(v T, _ bool, err error) T {
		if f.err == nil {
			f.err = err
		}
		return v
	}
}

// Has reports whether the config says anything at path.
func (f *Fields) Has(path string) bool {
	v, _ := f.config.Lookup(path)
	return v != nil
}

// Object complains of what stands at path and is no object.
func (f *Fields) Object(path string) {
	v, _ := f.config.Lookup(path)
	if _, ok := v.(map[string]any); v != nil && !ok {
		f.Corrupt(path, "is no object")
	}
}

// Int is a number of things.
func (f *Fields) Int(path string) int {
	v := keep[int64](f)(f.config.Int(path))
	if v < 0 || v > math.MaxInt32 {
		f.Corrupt(path, "%d is out of range", v)
		return 0
	}
	return int(v)
}

// Size is a number of things that cannot be none; 1 behind an error, so that it divides.
func (f *Fields) Size(path string) int {
	v := f.Int(path)
	if v == 0 {
		f.Corrupt(path, "must be a positive integer")
		return 1
	}
	return v
}

// Float is a number.
func (f *Fields) Float(path string) float64 { return keep[float64](f)(f.config.Float(path)) }

// Flag is a boolean.
func (f *Fields) Flag(path string) bool { return keep[bool](f)(f.config.Bool(path)) }

// Text is a string.
func (f *Fields) Text(path string) string { return keep[string](f)(f.config.String(path)) }

// Texts is a list of strings.
func (f *Fields) Texts(path string) []string { return keep[[]string](f)(f.config.Strings(path)) }

// Ints is a list of numbers of things: layers, token ids.
func (f *Fields) Ints(path string) []int32 {
	var out []int32
	for _, v := range keep[[]int64](f)(f.config.Ints(path)) {
		if v < 0 || v > math.MaxInt32 {
			f.Corrupt(path, "%d is out of range", v)
		}
		out = append(out, int32(v))
	}
	return out
}

// Floats is a list of numbers.
func (f *Fields) Floats(path string) []float64 {
	v, _ := f.config.Lookup(path)
	list, _ := v.([]any)
	var out []float64
	for i := range list {
		out = append(out, f.Float(fmt.Sprintf("%s.%d", path, i)))
	}
	return out
}
