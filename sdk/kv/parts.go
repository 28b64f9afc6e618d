package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// part is what a run holds of one layer: arrays of its own, or blocks of a pool.
type part struct {
	form   uint8 // the storage's own: how the arrays are to be read
	lost   int   // how many of the run's first tokens the part does not have
	arrays []*mlx.Array
	blocks []*block // counted as a run's
	at     int      // of the first block's rows, the run's first
}

// Forms of parts of keys and values.
const (
	nativeForm uint8 = iota
	codedForm
)

func (p part) close() {
	for _, a := range p.arrays {
		a.Close()
	}
	for _, b := range p.blocks {
		b.drop()
	}
}

// none reports whether the part has nothing at all of its run.
func (p part) none() bool { return len(p.arrays)+len(p.blocks) == 0 }

// bytes the part takes: of blocks the whole.
func (p part) bytes() int64 {
	n := int64(0)
	for _, a := range p.arrays {
		n += int64(a.NBytes())
	}
	for _, b := range p.blocks {
		n += b.bytes()
	}
	return n
}

// rows are [from, to) of those that the part has, of keys (0) or of values (1); of a latent there is the first alone.
func (p part) rows(s *mlx.Scope, i, from, to int) *mlx.Array {
	if len(p.blocks) == 0 {
		return s.SliceAxis(p.arrays[i], 2, from, to)
	}
	var out []*mlx.Array
	for from, to = from+p.at, to+p.at; from < to; {
		b, next := p.blocks[from/Step], min(to, (from/Step+1)*Step)
		out = append(out, s.SliceAxis(b.rows[i], 2, from%Step, from%Step+next-from))
		from = next
	}
	if len(out) == 1 {
		return out[0]
	}
	return s.Concat(2, out...)
}

// data is what a part of a run of so many tokens has, as arrays.
func (p part) data(s *mlx.Scope, tokens int) []*mlx.Array {
	if len(p.blocks) == 0 {
		return p.arrays
	}
	out := make([]*mlx.Array, len(p.blocks[0].rows))
	for i := range out {
		out[i] = p.rows(s, i, 0, tokens)
	}
	return out
}

// section is the tokens [from, from+tokens) of a part of `of` tokens.
type section struct {
	part
	from, tokens, of int
}

// missing is how many of the section's first tokens its part does not have.
func (c section) missing() int {
	if c.none() {
		return c.tokens
	}
	return min(max(0, c.lost-c.from), c.tokens)
}

// keyed is what storages of keys and values have alike, and what of a storage they are alike in.
type keyed struct {
	spec    Spec
	kernels bool
	compute mlx.DType
	coded   bool // what is stored has the format's codes; before its start it is native
}

func newKeyed(p Spec, kernels bool) keyed {
	return keyed{spec: p, kernels: kernels, coded: p.Format.Start == 0}
}

// codes are how keys and values are stored now; of a latent's rows there is one.
func (l *keyed) codes() []Code { return l.spec.codes(l.coded) }

// decoded are keys and values of stored rows; a latent's are the same.
func (l *keyed) decoded(s *mlx.Scope, stored func(i int) *mlx.Array) (k, v *mlx.Array) {
	var out []*mlx.Array
	for i, c := range l.codes() {
		out = append(out, c.decode(s, stored(i), l.spec.HeadDim, l.compute))
	}
	return out[0], out[len(out)-1]
}

// sequence is what a kernel is told of tokens behind offset, but where rows lie.
func (l *keyed) sequence(offset, tokens int) mlx.CacheSequence {
	codes := l.codes()
	return mlx.CacheSequence{Offset: offset, Tokens: tokens, KeyCode: codes[0].kernel(), ValueCode: codes[len(codes)-1].kernel()}
}

// encodeAll turns rows into stored ones, as many as there are codes.
func encodeAll(s *mlx.Scope, codes []Code, kernels bool, rows ...*mlx.Array) []*mlx.Array {
	var out []*mlx.Array
	for i, c := range codes {
		out = append(out, c.encode(s, rows[i], kernels))
	}
	return out
}

// form is a part's that is taken now.
func (l *keyed) form() uint8 {
	if l.coded && !l.spec.Format.Native() {
		return codedForm
	}
	return nativeForm
}

// computes takes the dtype of the tokens behind offset. False, with the scope's error, where a forward of them goes across the start.
func (l *keyed) computes(s *mlx.Scope, dtype mlx.DType, offset, tokens int) bool {
	if at := l.spec.Format.Start; offset < at && at < offset+tokens {
		_ = s.Fail(fmt.Errorf("a forward from %d to %d, and the cache goes over to its codes at %d", offset, offset+tokens, at))
		return false
	}
	l.compute = dtype
	return true
}

func (l *keyed) shapes(form uint8, tokens int, dtype mlx.DType) ([]shape, bool) {
	l.compute = dtype
	return l.spec.shapes(form, tokens, dtype)
}

func (l *keyed) usable(sections []section, n int) int { return l.spec.usable(sections, n) }

func (l *keyed) join(s *mlx.Scope, sections []section) (part, error) {
	return l.spec.join(s, sections, l.kernels)
}

// codes are those of keys and values, native before the format's start; the first alone of a latent's rows, which are both.
func (p Spec) codes(coded bool) []Code {
	out := []Code{p.Format.Keys, p.Format.Values}
	if !coded {
		out = make([]Code, 2)
	}
	if p.Latent {
		return out[:1]
	}
	return out
}

// shapes are storage.shapes of keys and values.
func (p Spec) shapes(form uint8, tokens int, dtype mlx.DType) ([]shape, bool) {
	if form > codedForm {
		return nil, false
	}
	var out []shape
	for _, c := range p.codes(form == codedForm) {
		stored, width := c.row(p.HeadDim, dtype)
		out = append(out, shape{stored, []int{1, p.Heads, tokens, width}})
	}
	return out, true
}

// usable is storage.usable of keys and values: it leaves out what is missing of a window, and codes where the layer would not have any
// yet.
func (p Spec) usable(sections []section, n int) int {
	start := p.Format.Start
	for before := -1; before != n; {
		before = n
		at := 0
		for _, c := range sections {
			gone, coded := c.missing(), !c.none() && c.form == codedForm
			seen := gone > 0 && (p.Window == 0 || at+gone > n-p.Window+1 || at < p.Keep)
			if at < n && (seen || (coded && n < start)) {
				n = at
				break
			}
			at += c.tokens
		}
	}
	return n
}

// join is storage.join of keys and values: it keeps the rows behind the last that are missing, in arrays of the part's own. Native ones
// before coded ones are coded: a run has one form.
func (p Spec) join(s *mlx.Scope, sections []section, kernels bool) (out part, err error) {
	total, first, coded := 0, 0, false // first: the section from which on the part has rows
	for i, c := range sections {
		if total += c.tokens; c.missing() > 0 {
			out.lost, first = total-c.tokens+c.missing(), i
		}
		coded = coded || (!c.none() && c.form == codedForm)
	}
	if out.lost == total {
		return part{}, nil
	}
	if coded {
		out.form = codedForm
	}
	for i, code := range p.codes(coded) {
		var parts []*mlx.Array
		for _, c := range sections[first:] {
			if from := c.from + c.missing() - c.lost; c.missing() < c.tokens {
				a := c.rows(s, i, from, from+c.tokens-c.missing())
				if coded && c.form == nativeForm {
					a = code.encode(s, a, kernels)
				}
				parts = append(parts, a)
			}
		}
		out.arrays = append(out.arrays, s.Keep(s.Concat(2, parts...)))
	}
	if err = s.Eval(out.arrays...); err != nil {
		out.close()
	}
	return out, err
}
