package engine

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// plainCodes are the plain schemes.
var plainCodes = map[string]mlx.DType{family.F32KV: mlx.Float32, family.BF16KV: mlx.BFloat16}

// storeCaches gives the layers' caches the formats that the composition's scheme has for them. Layers are counted as the layout lists
// them. What a layer cannot be stored as is refused by name.
func (d *draft) storeCaches() error {
	caches := slices.Clone(d.Layout.Caches)
	changed := false
	for i := range caches {
		f := d.format(i, caches[i])
		if err := d.narrow(i, &caches[i]); err != nil {
			return err
		}
		if f.Native() || caches[i].Heads == 0 || caches[i].Source > 0 {
			continue
		}
		caches[i].Format, changed = f, true
		if err := caches[i].Check(); err != nil {
			return unhonoured("kv", "%s: layer %d: %w", d.kv, i, err).WithNext("name another scheme, such as bf16, or leave it out")
		}
	}
	for _, l := range d.kv.Layers {
		if l.Layer >= int64(len(caches)) {
			return invalid("kv", "%s names layer %d, and %d keep keys and values", d.kv, l.Layer, len(caches))
		}
	}
	if d.kv.Kind() == "turbo" && !changed {
		return unhonoured("kv", "%s: no layer attends to all positions, and it is for those", d.kv).WithNext("use an affine scheme, or leave it out")
	}
	if d.window > 0 && !slices.ContainsFunc(caches, func(p kv.Spec) bool { return p.Keep == d.keep && p.Window == d.window }) {
		return unhonoured("kv_window", "no layer attends to all positions").WithNext("leave it out")
	}
	d.Layout.Caches = caches
	if d.paging && kv.Paged(caches) == 0 {
		return unhonoured("paging", "no layer attends to all positions").WithNext("leave it out")
	}
	return nil
}

// format is the scheme's for a layer.
func (d *draft) format(i int, spec kv.Spec) kv.Format {
	var keys, values kv.Code
	switch affine := func(bits, group int64) kv.Code { return kv.Code{Kind: kv.Affine, Bits: int(bits), Group: int(group)} }; {
	case d.kv.Bits > 0:
		keys = affine(d.kv.Bits, d.kv.Group)
		values = keys
	case d.kv.K > 0 && spec.Window == 0:
		keys, values = kv.Code{Kind: kv.Turbo, Bits: int(d.kv.K)}, kv.Code{Kind: kv.Turbo, Bits: int(d.kv.V)}
	case len(d.kv.Layers) > 0:
		for _, l := range d.kv.Layers {
			if l.Layer == int64(i) {
				keys = affine(l.Bits, l.Group)
				values = keys
			}
		}
	default:
		if dtype, ok := plainCodes[d.kv.Plain]; ok && dtype != d.dtype {
			keys = kv.Code{Kind: kv.Float, DType: dtype}
			values = keys
		}
	}
	if keys == (kv.Code{}) {
		return kv.Format{}
	}
	return kv.Format{Keys: keys, Values: values, Start: int(d.kv.Start)}
}

// narrow bounds what a layer that attends to all positions sees, where the composition wants it.
func (d *draft) narrow(i int, p *kv.Spec) error {
	switch {
	case d.window == 0 || p.Window > 0 || p.Heads == 0 || p.Source > 0 || len(p.State) > 0:
		return nil
	case p.Latent:
		return unhonoured("kv_window", "layer %d keeps latents, which have no window", i).WithNext("leave it out")
	}
	p.Window, p.Keep = d.window, d.keep
	return nil
}

// coded reports whether a layer is stored otherwise than it is computed.
func (d *draft) coded() bool {
	return slices.ContainsFunc(d.Layout.Caches, func(p kv.Spec) bool { return !p.Format.Native() })
}

// cacheKernels are those beside the graph's own that the caches want. A window's ring is no reason to do without the others: a
// library that lacks the kernel keeps all tokens.
func (d *draft) cacheKernels(b *Backend) []string {
	windows := slices.ContainsFunc(d.Layout.Caches, func(p kv.Spec) bool { return p.Window > 0 })
	if d.coded() || d.paging || (windows && b.library != nil && b.library.Has(kernels.AttendCaches.Name)) {
		return []string{kernels.AttendCaches.Name}
	}
	return nil
}

// kvBytes is what the caches of all rows take at most.
func (d *draft) kvBytes() int64 {
	return kv.Bytes(d.Layout.Caches, d.dtype, d.kvTokens(), d.rows, kv.Capacity(d.context))
}

// kvTransient is what coded caches take beside: a layer that goes over to its codes is there twice, and stock operations read one
// as floats, or blocks in one piece.
func (d *draft) kvTransient() int64 {
	n := kv.Converting(d.Layout.Caches, d.dtype, d.context)
	if d.library != nil {
		return n
	}
	widest := int64(0)
	for _, p := range d.Layout.Caches {
		if !p.Format.Native() || d.paging {
			widest = max(widest, int64(p.Heads)*int64(p.HeadDim))
		}
	}
	return n + decodedCopies*widest*int64(mlx.Float32.Size())*int64(kv.Capacity(d.context))
}

// decodedCopies are the keys and values of a layer while they are decoded: codes, floats, and the product of both.
const decodedCopies = 6

// kvDetail describes the kv line.
func (d *draft) kvDetail(perToken int64) string {
	keyed := 0
	for _, p := range d.Layout.Caches {
		if p.BytesPerToken(d.dtype) > 0 {
			keyed++
		}
	}
	detail := fmt.Sprintf("%d tokens of %d bytes in %d layers, for %d rows", d.kvTokens(), perToken, keyed, d.rows)
	if d.coded() {
		detail += ", stored as " + d.kv.String()
	}
	windows, most, latents, columns := 0, 0, 0, 0
	for _, p := range d.Layout.Caches {
		if p.Latent {
			latents, columns = latents+1, max(columns, p.HeadDim)
		}
		if p.Window > 0 {
			windows, most = windows+1, max(most, p.Window)
		}
	}
	if d.paging {
		detail += fmt.Sprintf("; %d of the layers in %d blocks of %d tokens, of which rows with the same beginning share", kv.Paged(d.Layout.Caches), d.kvTokens()/kv.Step, kv.Step)
	}
	if latents > 0 {
		detail += fmt.Sprintf("; %d of the layers keep a latent row of %d columns for all heads", latents, columns)
	}
	if d.window > 0 {
		detail += fmt.Sprintf("; layers that would attend to all positions see %d, and the first %d", d.window, d.keep)
	}
	if windows > 0 {
		detail += fmt.Sprintf("; %d of the layers keep a window of %d tokens at most, and %d more", windows, most, kv.Step)
	}
	return detail
}

// besideNote says that what drafts keeps its caches as they are computed, each in a buffer of its own, where the target's are otherwise.
// None of them is in the prefix cache, so no two texts could ever hold one block; and what a draft rounds costs drafts.
func (d *draft) besideNote() (notes []string) {
	holds := func(one beside) bool {
		return slices.ContainsFunc(one.Layout.Caches, func(p kv.Spec) bool { return p.Heads > 0 })
	}
	if !slices.ContainsFunc(d.beside, holds) {
		return nil
	}
	if d.paging {
		notes = append(notes, "the draft's caches are not paged: each text has its own, of which nothing is shared")
	}
	if d.coded() {
		notes = append(notes, fmt.Sprintf("the draft's caches are stored as they are computed, not as %s", d.kv))
	}
	return notes
}

// kvNote says how caches are stored where that is not how they are computed, and that they are in blocks.
func (d *draft) kvNote() (notes []string) {
	if d.paging {
		notes = append(notes, fmt.Sprintf("caches of %d of %d layers are paged: blocks of %d tokens, shared", kv.Paged(d.Layout.Caches), len(d.Layout.Caches), kv.Step))
	}
	if d.window > 0 {
		notes = append(notes, fmt.Sprintf("kv_window: attention sees the last %d tokens and the first %d, not all as the model was trained", d.window, d.keep))
	}
	if !d.coded() {
		return notes
	}
	n := 0
	for _, p := range d.Layout.Caches {
		if !p.Format.Native() {
			n++
		}
	}
	note := fmt.Sprintf("caches of %d of %d layers are stored as %s", n, len(d.Layout.Caches), d.kv)
	if start := d.kv.Start; start > 0 {
		note += fmt.Sprintf(": from token %d on, and natively before", start)
	}
	return append(notes, note)
}
