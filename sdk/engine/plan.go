package engine

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/kv"
)

const (
	// processBytes is a plugin with the runtime loaded and no model (measured: 58 MB resident), with room for Go's heap.
	processBytes = 96 << 20
	// allocatorCache bounds what MLX keeps of freed memory.
	allocatorCache = 64 << 20
	// transientBytes bounds the activations of one evaluation: the prefill chunk is cut to it.
	transientBytes = 256 << 20
)

// draft is a model that could be opened: everything that Plan and Open derive from the headers.
type draft struct {
	settings
	Blueprint
	graph       Graph
	graphReason string
	kernels     []*cladev1.KernelChoice
}

// plan sums what opening takes.
func (d *draft) plan() *cladev1.Plan {
	perToken := int64(0)
	for _, spec := range d.Layout.Caches {
		perToken += spec.BytesPerToken(d.dtype)
	}
	held := fmt.Sprintf("%d values", d.Weights.Elements())
	if q := d.Weights.Quantized(); q != "" {
		held += "; " + q + " as float32"
	}
	logits := int64(d.Layout.Vocab) * 4 * sampledRows
	p := &cladev1.Plan{
		Lines: []*cladev1.MemoryLine{
			{Name: "weights", Bytes: uint64(d.Weights.LoadedBytes(d.dtype)), Detail: held},
			{
				Name: "kv", Bytes: uint64(perToken * int64(kv.Capacity(d.context))),
				Detail: fmt.Sprintf("%d tokens of %d bytes in %d layers", kv.Capacity(d.context), perToken, len(d.Layout.Caches)),
			},
			{
				Name: "transients", Bytes: uint64(int64(d.chunk)*d.TokenBytes(d.context, d.dtype) + logits),
				Detail: fmt.Sprintf("evaluations of at most %d tokens, and sampling", d.chunk),
			},
			{Name: "process", Bytes: processBytes, Detail: "the plugin and its runtime, measured"},
			{Name: "reserve", Bytes: allocatorCache, Detail: "freed memory that MLX keeps for reuse"},
		},
		GraphEntry: d.graph.ID, GraphReason: d.graphReason, Kernels: d.kernels, Context: uint32(d.context),
		BytesPerToken: uint64(perToken), Device: d.device.Name, Dtype: d.dtype.String(), Notes: d.notes(),
	}
	for _, line := range p.Lines {
		p.TotalBytes += line.Bytes
	}
	return p
}

// sampledRows is how many rows of the vocabulary's width sampling holds at once: logits, their filtered copies, noise.
const sampledRows = 12

func (d *draft) notes() []string {
	q := d.Weights.Quantized()
	if q == "" {
		return nil
	}
	return []string{fmt.Sprintf("quantized weights (%s) are dequantized to float32 at load: this version has no kernels that read them packed", q)}
}

// checkKernels refuses a fallback where the composition asks for it.
func (d *draft) checkKernels() error {
	if d.kernelPolicy != "require" {
		return nil
	}
	for _, k := range d.kernels {
		if !k.Native {
			return contract.Errorf(contract.UnsupportedOption, "kernels", "%s cannot run: %s", k.Name, k.Reason).
				WithNext("use kernels=auto to run the fallback")
		}
	}
	return nil
}

// cutChunk keeps an evaluation's activations within transientBytes.
func (d *draft) cutChunk() {
	fits := int(transientBytes / max(1, d.TokenBytes(d.context, d.dtype)))
	d.chunk = max(1, min(d.chunk, fits))
}
