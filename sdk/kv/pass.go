package kv

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Segment is the new tokens of one sequence in a forward.
type Segment struct {
	Cache  *Cache
	Tokens int
	// Keep lists, ascending, behind how many of its tokens, at least one and not all, states are kept as they were then, until the next
	// pass: Copy takes them into a run that ends there. Keys and values can be copied to any token without.
	Keep []int
}

// Pass is one forward of several sequences, ragged: their new tokens lie one after another along T, each segment at the positions
// from its cache's offset on. What sees all tokens at once (projections, MLPs) needs to know nothing of it; Attend does. A cache
// is in one segment of a pass at most.
type Pass struct {
	segments []Segment
	tokens   int // of all segments
	masks    map[maskKey]*mlx.Array
}

// maskKey holds all that a mask depends on: the last queries of keys in a row, of which the first keep are seen beside the window;
// and kept keys before them, which are seen too.
type maskKey struct{ queries, keys, window, keep, kept int }

// Begin starts a forward over the segments, in the order of their tokens. End commits it.
func Begin(segments ...Segment) *Pass {
	p := &Pass{segments: segments, masks: map[maskKey]*mlx.Array{}}
	for _, g := range segments {
		p.tokens += g.Tokens
	}
	p.board()
	return p
}

// board tells the model's linear layers which rows have which adapters, also when none has.
func (p *Pass) board() {
	var spans []nn.Span
	first := 0
	for _, g := range p.segments {
		if len(g.Cache.stack) > 0 {
			spans = append(spans, nn.Span{First: first, Rows: g.Tokens, Stack: g.Cache.stack})
		}
		first += g.Tokens
	}
	if len(p.segments) > 0 && p.segments[0].Cache.board != nil {
		p.segments[0].Cache.board.Set(spans...)
	}
}

// Begin starts a forward of n new tokens of this sequence alone.
func (c *Cache) Begin(n int) *Pass { return Begin(Segment{Cache: c, Tokens: n}) }

// End moves each offset past the tokens of the pass.
func (p *Pass) End() {
	for _, g := range p.segments {
		g.Cache.offset += g.Tokens
		if g.Cache.board != nil {
			g.Cache.board.Set()
		}
	}
}

// Segments lists the pass's sequences in the order of their tokens, for layers that keep a state of their own.
func (p *Pass) Segments() []Segment { return p.segments }

// Tokens is T, the tokens of all segments.
func (p *Pass) Tokens() int { return p.tokens }

// Arrays lists the buffers of every cache in the pass, for an evaluation that commits them.
func (p *Pass) Arrays() []*mlx.Array {
	var out []*mlx.Array
	for _, g := range p.segments {
		out = append(out, g.Cache.Arrays()...)
	}
	return out
}

// Attention is what one layer does with its projections.
type Attention struct {
	Heads int // of queries; the cache's Spec has those of keys and values
	Scale float32
	Rope  *nn.Rope // nil where positions do not rotate
	// QNorm and KNorm normalise each head [HeadDim] of queries and keys before it rotates; without weights, none.
	QNorm, KNorm nn.RMSNorm
	// Softcap bends scores to Softcap * tanh(score / Softcap); 0 leaves them.
	Softcap float32
}

// packs reports whether the kernel computes the attention over a layer of c.
func (a Attention) packs(c *Cache, spec Spec) bool {
	return c.kernels && (a.Softcap == 0 || mlx.AttendsSoftcap()) && (!spec.Latent || mlx.AttendsLatent())
}

// Attend takes the projections qkv [1, T, (Heads + 2 KVHeads) * HeadDim] of layer i: it rotates queries and keys, stores keys
// and values, and returns the attention [1, T, Heads * HeadDim] of each query over all that it may see of its own sequence. Of a latent
// layer the projections [1, T, (Heads + 1) * HeadDim] have no values: rows are both (AttendLatent).
func (p *Pass) Attend(s *mlx.Scope, i int, qkv *mlx.Array, a Attention) *mlx.Array {
	spec := p.segments[0].Cache.specs[i]
	if want := []int{1, p.tokens, (a.Heads + len(spec.codes(false))*spec.Heads) * spec.HeadDim}; s.Err() == nil && !slices.Equal(qkv.Shape(), want) {
		_ = s.Fail(fmt.Errorf("attend: layer %d got projections %v, not %v", i, qkv.Shape(), want))
	}
	together := len(p.segments) == 1 || !p.grows(a.Rope) && (mlx.AttendsCaches() || mlx.AttendsRows(len(p.segments)))
	if a.packs(p.segments[0].Cache, spec) && together {
		return attendKernel(s, spec, p.segments, i, qkv, a)
	}
	parts, first := make([]*mlx.Array, len(p.segments)), 0
	for j, g := range p.segments {
		part := s.SliceAxis(qkv, 1, first, first+g.Tokens)
		if first += g.Tokens; a.packs(g.Cache, spec) {
			parts[j] = attendKernel(s, spec, []Segment{g}, i, part, a)
		} else {
			parts[j] = p.attend(s, g, i, part, a)
		}
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concat(1, parts...)
}

// grows reports whether segments rotate by bases of their own.
func (p *Pass) grows(r *nn.Rope) bool {
	return r != nil && slices.ContainsFunc(p.segments, func(g Segment) bool { return r.Grows(g.Cache.offset + g.Tokens) })
}

// attend is Attend for one segment, whose projections qkv are, by stock operations.
func (p *Pass) attend(s *mlx.Scope, g Segment, i int, qkv *mlx.Array, a Attention) *mlx.Array {
	c := g.Cache
	spec, l := c.specs[i], c.attended(s, i)
	q := split(s, qkv, 0, a.Heads, spec.HeadDim, a.QNorm)          // [1, Hq, T, D]
	k := split(s, qkv, a.Heads, spec.Heads, spec.HeadDim, a.KNorm) // [1, Hkv, T, D]
	var v *mlx.Array
	if !spec.Latent {
		v = split(s, qkv, a.Heads+spec.Heads, spec.Heads, spec.HeadDim, nn.RMSNorm{}) // [1, Hkv, T, D]
	}
	if a.Rope != nil {
		q, k = a.Rope.Forward(s, q, c.offset), a.Rope.Forward(s, k, c.offset)
	}
	l.put(s, k, v, c.offset)
	if s.Err() != nil {
		return q
	}
	first, end := 0, c.offset+g.Tokens // first is the oldest key of its window that any query of the segment sees
	if spec.Window > 0 {
		first = max(0, c.offset-spec.Window+1)
	}
	m := maskKey{queries: g.Tokens, window: spec.Window}
	switch {
	case first <= spec.Keep: // what is kept lies before it without a gap
		first, m.keep = 0, spec.Keep
	case spec.Keep > 0:
		m.kept = spec.Keep
	}
	m.keys = end - first
	keys, values := l.view(s, first, end)
	if m.kept > 0 {
		k, v := l.view(s, 0, m.kept)
		keys, values = s.Concat(2, k, keys), s.Concat(2, v, values)
	}
	var o *mlx.Array
	if a.Softcap != 0 {
		o = a.capped(s, q, keys, values, p.seen(s, m))
	} else {
		o = s.SDPA(q, keys, values, a.Scale, p.mask(s, m), nil)
	}
	return s.Reshape(s.Transpose(o, 0, 2, 1, 3), 1, -1, a.Heads*spec.HeadDim)
}

// split maps the n heads of x [1, T, all*D] that begin at head first to [1, n, T, D], each normalised where norm has a weight.
func split(s *mlx.Scope, x *mlx.Array, first, n, dim int, norm nn.RMSNorm) *mlx.Array {
	x = s.Reshape(s.SliceAxis(x, -1, first*dim, (first+n)*dim), 1, -1, n, dim)
	if norm.Weight != nil {
		x = norm.Forward(s, x)
	}
	return s.Transpose(x, 0, 2, 1, 3)
}

// attendKernel is attend of segments as one kernel, which writes the caches in place: their handles are replaced by those it
// returns.
func attendKernel(s *mlx.Scope, spec Spec, segments []Segment, i int, qkv *mlx.Array, a Attention) *mlx.Array {
	layers, sequences := make([]attended, len(segments)), make([]mlx.CacheSequence, len(segments))
	plain := spec.Keep == 0 && a.Softcap == 0 // latents have tiles
	for j, g := range segments {
		layers[j] = g.Cache.attended(s, i)
		sequences[j] = layers[j].lend(s, qkv.DType(), g.Cache.offset, g.Tokens)
		plain = plain && sequences[j].Tiles == nil
	}
	if s.Err() != nil {
		return qkv
	}
	args := a.packed(s, spec, sequences[0].Offset+sequences[0].Tokens)
	if plain && len(segments) == 1 {
		args.Offset = sequences[0].Offset
		first := sequences[0].Pairs[0]
		out, keys, values := s.PackedAttend(qkv, first.Keys, first.Values, args)
		layers[0].giveBack(s, []mlx.CachePair{{Keys: keys, Values: values}})
		return out
	}
	if plain && mlx.AttendsRows(len(segments)) {
		return attendRows(s, layers, sequences, qkv, args)
	}
	for j, q := range sequences {
		if q.Tiles == nil {
			sequences[j].Tiles = slots{}.table(q.Offset + q.Tokens)
		}
	}
	out, after := s.AttendCaches(qkv, sequences, spec.Keep, args)
	for j, l := range layers {
		l.giveBack(s, after[j])
	}
	return out
}

// attendRows is attendKernel of plain buffers.
func attendRows(s *mlx.Scope, layers []attended, sequences []mlx.CacheSequence, qkv *mlx.Array, args mlx.PackedAttention) *mlx.Array {
	packed := make([]mlx.PackedSequence, len(sequences))
	for j, q := range sequences {
		packed[j] = mlx.PackedSequence{Keys: q.Pairs[0].Keys, Values: q.Pairs[0].Values, Offset: q.Offset, Tokens: q.Tokens}
	}
	out, after := s.PackedAttendRows(qkv, packed, args)
	for j, l := range layers {
		l.giveBack(s, []mlx.CachePair{{Keys: after[j].Keys, Values: after[j].Values}})
	}
	return out
}

// packed is the kernel's description of the attention in a forward that ends its sequences at end, which only bases that grow see.
func (a Attention) packed(s *mlx.Scope, spec Spec, end int) mlx.PackedAttention {
	args := mlx.PackedAttention{
		Heads: a.Heads, KVHeads: spec.Heads, HeadDim: spec.HeadDim, RopeScale: 1, RopeMScale: 1, Scale: a.Scale, Window: spec.Window,
		QNorm: a.QNorm.Weight, KNorm: a.KNorm.Weight, NormEps: a.QNorm.Eps, Softcap: a.Softcap, Latent: spec.Latent,
	}
	if a.Rope != nil {
		a.Rope.Kernel(s, end, &args)
	}
	return args
}

// mask is what queries may see: everything for one query, causal, or causal within a window. Masks are made once and shared by
// layers and segments of the same shape.
func (p *Pass) mask(s *mlx.Scope, k maskKey) mlx.Mask {
	if k.queries == 1 {
		return mlx.Mask{} // attend cut the keys to the window
	}
	if k.kept == 0 && (k.window == 0 || k.keys <= k.window) {
		return mlx.Causal()
	}
	return mlx.ArrayMask(p.seen(s, k))
}

// seen is the mask as an array of what each query sees; nil for everything.
func (p *Pass) seen(s *mlx.Scope, k maskKey) *mlx.Array {
	if k.queries == 1 {
		return nil
	}
	if m, ok := p.masks[k]; ok {
		return m
	}
	rows := s.ExpandDims(s.Arange(float64(k.keys-k.queries), float64(k.keys), 1, mlx.Int32), 1) // [T, 1]
	cols := s.ExpandDims(s.Arange(0, float64(k.keys), 1, mlx.Int32), 0)                         // [1, keys]
	m := s.GreaterEqual(rows, cols)
	if k.window > 0 {
		near := s.Less(rows, s.Add(cols, s.Scalar(float64(k.window), mlx.Int32)))
		if k.keep > 0 {
			near = s.LogicalOr(near, s.Less(cols, s.Scalar(float64(k.keep), mlx.Int32)))
		}
		m = s.LogicalAnd(m, near)
	}
	if k.kept > 0 {
		m = s.Concat(1, s.Ones([]int{k.queries, k.kept}, mlx.Bool), m)
	}
	p.masks[k] = m
	return m
}
