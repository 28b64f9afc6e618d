package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// Format is how a layer keeps its tokens. The zero Format keeps floats of the compute dtype.
type Format struct {
	Keys, Values Code
	// Start is the number of tokens at which the layer goes over to the codes: those before are native until then, and are all
	// converted when the next token comes. 0 codes from the first token on. No forward crosses it: see Cut.
	Start int
}

// Native reports whether the format is the compute dtype, for good.
func (f Format) Native() bool { return f == Format{} }

// Step is how many tokens a cache grows by.
const Step = 256

// Spec is what one layer keeps for each token.
type Spec struct {
	Heads, HeadDim int
	// Window is how many tokens back a query sees, itself included; 0 is all of them. A layer with one keeps no more tokens than
	// it needs for that and to be gone on from a few tokens earlier.
	Window int
	// Keep is how many of the first tokens a query sees beside its window; at most Step.
	Keep   int
	Format Format
	// Latent layers keep one row of a token, which is the keys and the values of all heads: see LatentSpec.
	Latent bool
	// Source is the most positions of a source that the layer attends to in place of the text's tokens: see Source. It keeps nothing of
	// those.
	Source int
	// State lists the arrays of a layer that keeps them in place of keys and values.
	State []Fixed
}

// Check says why the layer cannot be kept so; nil when it can.
func (p Spec) Check() error {
	if len(p.State) > 0 || p.Source > 0 {
		return nil
	}
	if p.Latent && p.Format.Keys != p.Format.Values {
		return fmt.Errorf("a latent row is keys and values at once, and cannot be stored as two codes")
	}
	for _, c := range []Code{p.Format.Keys, p.Format.Values} {
		if err := c.Fits(p.HeadDim); err != nil {
			return err
		}
	}
	if p.Latent && (p.Window > 0 || p.Heads != 1) {
		return fmt.Errorf("a latent layer has one row a token and no window")
	}
	if p.Keep < 0 || p.Keep > Step || (p.Keep > 0 && p.Window == 0) || p.Format.Start < 0 {
		return fmt.Errorf("%d tokens kept beside a window of %d, codes from %d on", p.Keep, p.Window, p.Format.Start)
	}
	return nil
}

// BytesPerToken is what one token takes in the layer's cache, once it is coded.
func (p Spec) BytesPerToken(dtype mlx.DType) int64 {
	return p.rowBytes(dtype, true)
}

// nativeBytes is BytesPerToken before Start.
func (p Spec) nativeBytes(dtype mlx.DType) int64 {
	return p.rowBytes(dtype, false)
}

func (p Spec) rowBytes(dtype mlx.DType, coded bool) int64 {
	n := int64(0)
	if p.Source > 0 {
		return 0
	}
	for _, c := range p.codes(coded) {
		n += int64(p.Heads) * c.bytes(p.HeadDim, dtype)
	}
	return n
}

// Capacity is the number of tokens that room is made for when a sequence holds n.
func Capacity(n int) int { return (n + Step - 1) / Step * Step }

// slots is the most tokens that the layer has room for; 0: as many as come.
func (p Spec) slots() int {
	if p.Window == 0 {
		return 0
	}
	n := Capacity(p.Window + Step)
	if p.Keep > 0 {
		n += Step // the first tokens' own
	}
	return n
}

// Cut is how many of n tokens behind the first ones a forward may take of a sequence with such layers: it ends where a layer goes
// over to its codes, and does not write over what its first token sees.
func Cut(specs []Spec, first, n int) int {
	for _, p := range specs {
		if at := p.Format.Start; first < at {
			n = min(n, at-first)
		}
		if p.Window > 0 {
			n = min(n, Capacity(p.Window+Step)-p.Window+1)
		}
	}
	return n
}

// Bytes is the most that the caches of rows sequences take in such layers, when all hold tokens together and none more than context:
// both multiples of Step.
func Bytes(specs []Spec, dtype mlx.DType, tokens, rows, context int) int64 {
	total := int64(0)
	for _, p := range specs {
		n := tokens
		if most := p.slots(); most > 0 {
			n = min(n, rows*min(most, context))
		}
		bytes := int64(n) * p.BytesPerToken(dtype)
		if p.Format.Start > 0 { // every row may be about to convert
			plain := min(n, rows*Capacity(min(p.Format.Start, context)))
			bytes += int64(plain) * max(0, p.nativeBytes(dtype)-p.BytesPerToken(dtype))
		}
		total += bytes
	}
	return total
}

// Converting is the most that a layer takes twice while it goes over to its codes.
func Converting(specs []Spec, dtype mlx.DType, context int) int64 {
	most := int64(0)
	for _, p := range specs {
		if start := p.Format.Start; start > 0 && start < context {
			n := Capacity(start)
			if slots := p.slots(); slots > 0 {
				n = min(n, slots)
			}
			most = max(most, int64(n)*p.BytesPerToken(dtype))
		}
	}
	return most
}
