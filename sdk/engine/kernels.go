package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
)

// What a composition may say of kernels; empty is auto.
const (
	kernelsRequired = "require" // refuses a fallback
	kernelsOff      = "off"     // stock operations
	kernelsFast     = "fast"    // rounds activations to 8 bits where weights are quantized; refused where nothing could be rounded
)

var kernelPolicies = []string{"auto", kernelsOff, kernelsRequired, kernelsFast}

// chooseKernels takes the kernels for this model if all that its graph wants are there: they share packed weights, so one
// alone is of no use.
func (d *draft) chooseKernels(b *Backend) {
	d.library, d.sampler, d.own = nil, nil, nil
	names := slices.Clone(d.graph.Kernels)
	if d.kernelPolicy == kernelsFast {
		names = append(names, kernels.LinearInt8.Name)
	}
	library, sources := d.weightKernels(b)
	names = append(names, library...)
	names = append(names, d.cacheKernels(b)...)
	for _, name := range d.Kernels {
		if b.library != nil && b.library.Has(name) {
			names = append(names, name)
		}
	}
	d.kernels = b.kernels.Load().Choose(names...)
	reason := ""
	switch {
	case d.kernelPolicy == kernelsOff:
		reason = "kernels=off"
	case d.device.Kind != mlx.CPU:
		reason = "there is none for " + d.device.Name
	case !d.Layout.kernelsFit():
		reason = "heads are not a multiple of 16 wide"
	}
	native := len(d.kernels) > 0
	for _, k := range d.kernels {
		if reason != "" {
			k.Native, k.Reason = false, reason
		}
		native = native && k.Native
	}
	if native {
		d.library = b.library.Kernels
	}
	d.kernels = append(d.kernels, sources...)
	d.chooseSampler(b)
	d.chooseOwn(b, names)
}

// chooseSampler takes the sampling kernel, which needs nothing but the library and serves every graph.
func (d *draft) chooseSampler(b *Backend) {
	for _, k := range b.kernels.Load().Choose(kernels.Sample.Name) {
		switch {
		case d.kernelPolicy == kernelsOff:
			k.Native, k.Reason = false, "kernels=off"
		case d.device.Kind != mlx.CPU:
			k.Native, k.Reason = false, "there is none for "+d.device.Name
		}
		if k.Native {
			d.sampler = b.library.Kernels
		}
		d.kernels = append(d.kernels, k)
	}
}

// checkKernels refuses a fallback where the composition asks for it.
func (d *draft) checkKernels() error {
	if d.kernelPolicy != kernelsRequired && d.kernelPolicy != kernelsFast {
		return nil
	}
	if d.kernelPolicy == kernelsFast && (len(d.graph.Kernels) == 0 || len(d.kernels) == 0) {
		return unhonoured("kernels", "fast: the graph %s uses none", d.graph.ID).WithNext("use kernels=auto")
	}
	for _, k := range d.kernels {
		if !k.Native {
			return contract.Errorf(contract.UnsupportedOption, "kernels", "%s cannot run: %s", k.Name, k.Reason).
				WithNext("use kernels=auto to run the fallback")
		}
	}
	if d.kernelPolicy == kernelsFast {
		if rounded, exact := d.Weights.Rounding(d.target()); rounded == 0 {
			return unhonoured("kernels", "fast rounds activations for quantized weights, and this model has none that it could be done for (%s)", exact).
				WithNext("use kernels=auto")
		}
	}
	return nil
}

// notes say what a person would want to know of the weights.
func (d *draft) notes() []string {
	notes := slices.Concat(d.Notes, d.kvNote(), d.besideNote())
	if d.library != nil && len(d.Unfused) > 0 {
		notes = append(notes, fmt.Sprintf("MLX operations compute %s: there are no kernels for them", strings.Join(d.Unfused, ", ")))
	}
	if d.sources != nil {
		notes = append(notes, "trellis codes stay as they are: a kernel that MLX compiles for "+d.device.Name+" decodes them inside the product")
	}
	q, held := d.Weights.Dequantized(d.target()), d.Weights.Held()
	for _, k := range d.kernels {
		if !k.Native && strings.HasPrefix(k.Name, kernels.Trellis.Name) {
			notes = append(notes, "trellis codes are decoded to float32 at load: "+k.Reason)
		}
	}
	switch {
	case q != "" && d.library == nil:
		notes = append(notes, fmt.Sprintf("quantized weights (%s) are dequantized to float32 at load: no kernels read them packed", q))
	case held != "" && d.library != nil:
		notes = append(notes, fmt.Sprintf("weights (%s) take more memory than in the file, with the same values: the kernels have no such levels", held))
	}
	if target := d.target(); target.Int8 {
		rounded, exact := d.Weights.Rounding(target)
		note := fmt.Sprintf("kernels=fast: activations are rounded to 8 bits in front of %d matrices", rounded)
		if exact != "" {
			note += fmt.Sprintf("; not in front of others (%s)", exact)
		}
		notes = append(notes, note)
	}
	return notes
}

// tokenBytes is what one token of an evaluation holds. Rounded activations lie beside those they are made of, with a scale for
// every 32 and a sum for every group.
func (d *draft) tokenBytes() int64 {
	n := d.TokenBytes(d.context, d.dtype, d.library != nil)
	if d.target().Int8 {
		n += int64(d.Weights.Widest()) * 3 / 2
	}
	return n
}
