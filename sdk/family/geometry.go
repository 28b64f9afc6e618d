package family

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract"
)

// LayerKind is what a layer keeps between steps.
type LayerKind string

// The kinds, spelled as in layer_types.
const (
	FullLayer    LayerKind = "full_attention"
	SlidingLayer LayerKind = "sliding_attention"
	LinearLayer  LayerKind = "linear_attention"
)

// LayerCache is the cache of one layer.
type LayerCache struct {
	Kind LayerKind
	// Heads is the number of key-value heads; KeyDim and ValueDim are per head.
	Heads, KeyDim, ValueDim int64
	// Window bounds the tokens a sliding layer keeps.
	Window int64
	// Shared layers read another layer's cache and keep none.
	Shared bool
	// StateBytes is what a linear layer keeps, whatever the context: its float32 state and its convolution tail.
	StateBytes int64
}

// Geometry is the caches of all layers, in order.
type Geometry struct{ Layers []LayerCache }

// KVBytes is how a cache stores an element. The zero value is two bytes, as bf16 and f16.
type KVBytes struct {
	// Element is the bytes of an unquantized element.
	Element int64
	// Bits and Group describe affine storage: each group keeps a two-byte scale and a two-byte bias.
	Bits, Group int64
	// Keys and Values are a turbo scheme's bits: each row is words of four bytes, a scale for each block and the codes.
	Keys, Values int64
}

// turboRow is the bytes of a row of dim columns, whose blocks are the largest power of two that divides them.
func turboRow(dim, bits int64) int64 {
	if dim == 0 {
		return 0
	}
	return 4 * (dim/(dim&-dim) + (dim*bits+31)/32)
}

// affineOverhead is a group's scale and bias, in bytes.
const affineOverhead = 4

// of is the bytes of n elements, rounded up.
func (k KVBytes) of(n int64) int64 {
	if k.Bits > 0 && k.Group > 0 {
		return (n*(k.Bits*k.Group+8*affineOverhead) + 8*k.Group - 1) / (8 * k.Group)
	}
	if k.Element == 0 {
		return n * halfBytes
	}
	return n * k.Element
}

// halfBytes is the bytes of a bf16 or f16 element.
const halfBytes = 2

// TokenBytes is what one token takes in this layer.
func (l LayerCache) TokenBytes(k KVBytes) int64 {
	switch {
	case l.Kind == LinearLayer:
		return 0
	case k.Keys > 0:
		return l.Heads * (turboRow(l.KeyDim, k.Keys) + turboRow(l.ValueDim, k.Values))
	}
	return k.of(l.Heads * (l.KeyDim + l.ValueDim))
}

// PerToken sums full and sliding layers. Shared layers count only if withShared, as estimators do that know no sharing.
func (g Geometry) PerToken(k KVBytes, withShared bool) (full, sliding int64) {
	for _, l := range g.Layers {
		switch {
		case l.Shared && !withShared:
		case l.Kind == FullLayer:
			full += l.TokenBytes(k)
		case l.Kind == SlidingLayer:
			sliding += l.TokenBytes(k)
		}
	}
	return full, sliding
}

// StateBytes sums the linear layers.
func (g Geometry) StateBytes() int64 {
	total := int64(0)
	for _, l := range g.Layers {
		total += l.StateBytes
	}
	return total
}

// Bytes is what rows sequences of context tokens keep: sliding layers stop growing at their window.
func (g Geometry) Bytes(context, rows int64, k KVBytes) int64 {
	total := int64(0)
	for _, l := range g.Layers {
		if l.Shared {
			continue
		}
		tokens := context
		if l.Kind == SlidingLayer {
			tokens = min(context, l.Window)
		}
		total += rows * (tokens*l.TokenBytes(k) + l.StateBytes)
	}
	return total
}

// Geometry derives the caches from the canonical config. A family whose record says cache none has none.
func (p Parsed) Geometry() (Geometry, error) {
	if p.Record != nil && p.Record.Cache == NoCache {
		return Geometry{}, nil
	}
	g := geometryReader{p: p}
	layers := g.need("num_hidden_layers")
	kv := g.or("num_key_value_heads", g.need("num_attention_heads"))
	head := g.need("head_dim")
	globalHead := g.or("global_head_dim", head)
	globalKV := kv
	if shared, _, _ := p.Bool("attention_k_eq_v"); shared {
		globalKV = g.or("num_global_key_value_heads", kv)
	}
	window := g.or("sliding_window", 0)
	firstShared := layers - g.or("num_kv_shared_layers", 0)
	kinds, listed, err := p.Strings("layer_types")
	if g.err != nil || err != nil {
		return Geometry{}, firstOf(g.err, err)
	}
	if layers > layerLimit || listed && int64(len(kinds)) != layers {
		return Geometry{}, p.badField("layer_types", fmt.Sprintf("has %d entries for %d layers", len(kinds), layers))
	}
	out := Geometry{Layers: make([]LayerCache, layers)}
	for i := range out.Layers {
		l := LayerCache{Kind: FullLayer, Heads: globalKV, KeyDim: globalHead, Shared: int64(i) >= firstShared}
		if listed {
			l.Kind = LayerKind(kinds[i])
		}
		switch l.Kind {
		case FullLayer:
		case SlidingLayer:
			l.Heads, l.KeyDim, l.Window = kv, head, window
			if window == 0 {
				return Geometry{}, p.badField("sliding_window", "is missing, and layer_types has sliding layers")
			}
		case LinearLayer:
			l.StateBytes = g.linear()
		default:
			return Geometry{}, p.badField("layer_types", fmt.Sprintf("%q is unknown", kinds[i]))
		}
		l.ValueDim = l.KeyDim
		out.Layers[i] = l
	}
	return out, g.err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p Parsed) badField(path, why string) error {
	return contract.Errorf(contract.ArtifactCorrupt, p.Name()+": "+path, "%s", why)
}

// geometryReader reads integers and keeps the first error.
type geometryReader struct {
	p   Parsed
	err error
}

// geometryLimit bounds each factor, so that products of four stay in 63 bits.
const geometryLimit = 1 << 20

func (g *geometryReader) or(path string, absent int64) int64 {
	n, ok, err := g.p.Int(path)
	switch {
	case err != nil:
		g.err = firstOf(g.err, err)
	case ok && (n < 0 || n > geometryLimit):
		g.err = firstOf(g.err, g.p.badField(path, fmt.Sprintf("is %d, want 0 to %d", n, geometryLimit)))
	case ok:
		return n
	}
	return absent
}

func (g *geometryReader) need(path string) int64 {
	n := g.or(path, -1)
	if n < 0 && g.err == nil {
		g.err = g.p.badField(path, "is missing")
	}
	return max(n, 0)
}

// linear is one gated linear layer: float32 state [Hv, Dv, Dk], and conv-1 rows of 2*Hk*Dk + Hv*Dv channels of two bytes.
func (g *geometryReader) linear() int64 {
	hv, hk := g.need("linear_num_value_heads"), g.need("linear_num_key_heads")
	dv, dk := g.need("linear_value_head_dim"), g.need("linear_key_head_dim")
	conv := g.need("linear_conv_kernel_dim")
	const limit = 1 << 13
	if hv > limit || hk > limit || dv > limit || dk > limit || conv > limit {
		g.err = firstOf(g.err, g.p.badField("linear_num_value_heads", "the linear layers are too large"))
		return 0
	}
	return hv*dv*dk*4 + max(conv-1, 0)*(2*hk*dk+hv*dv)*2
}
