package engine

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

const (
	// processBytes is a plugin with the runtime loaded (measured: 34 MB resident with a tiny model), with room for Go's heap.
	processBytes = 40 << 20
	// allocatorCache is the most that MLX may keep of freed memory, allocatorFloor what it may keep for any model.
	allocatorCache = 64 << 20
	allocatorFloor = 8 << 20
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
	library     *mlx.Kernels              // nil: stock operations
	sources     *kernels.Sources          // take trellis codes on a GPU; nil: stock operations
	sampler     *mlx.Kernels              // has the kernel that picks tokens; nil: stock operations
	own         map[string]*mlx.Operation // of the plugin's own library, that run
	beside      []beside                  // what goes with it
	adapters    []wishedAdapter
}

// target is what the weights are loaded for.
func (d *draft) target() weights.Target {
	return weights.Target{DType: d.dtype, Kernels: d.library, Sources: d.sources, Int8: d.library != nil && d.kernelPolicy == kernelsFast}
}

// plan sums what opening takes.
func (d *draft) plan() (*cladev1.Plan, error) {
	perToken := int64(0)
	for _, spec := range d.Layout.Caches {
		perToken += spec.BytesPerToken(d.dtype)
	}
	loaded, err := d.Weights.LoadedBytes(d.target())
	if err != nil {
		return nil, err
	}
	held := fmt.Sprintf("%d values", d.Weights.Elements())
	if q := d.Weights.Dequantized(d.target()); q != "" && d.library == nil {
		held += "; " + q + " as float32"
	} else if q := d.Weights.Quantized(); q != "" {
		held += "; " + q
	}
	kvBytes, kvTransient := d.kvBytes(), d.kvTransient()
	token := d.tokenBytes()
	rows := int64(d.rows)
	drafts := int64(draftsOf(d.rows, d.depth))
	sampled := token + int64(d.Layout.Vocab)*4*sampledRows
	step := rows * sampled // one token of every row
	chunk := int64(d.chunk-1) * token
	beside := fmt.Sprintf("evaluations of at most %d tokens beside %d rows, and sampling", d.chunk, d.rows)
	if drafts > 0 {
		beside += fmt.Sprintf(", with %d drafts checked", drafts)
	}
	p := &cladev1.Plan{
		Lines: []*cladev1.MemoryLine{
			{Name: "weights", Bytes: uint64(loaded), Detail: held},
			{Name: "kv", Bytes: uint64(kvBytes), Detail: d.kvDetail(perToken)},
			{Name: "transients", Bytes: uint64(chunk + step + drafts*sampled + kvTransient), Detail: beside},
			{Name: runAhead, Bytes: uint64(step), Detail: "the step that is queued while one computes"},
			{Name: "load", Bytes: uint64(d.stagingBytes()), Detail: "pieces of the file on their way into memory"},
			{Name: "process", Bytes: processBytes, Detail: "the plugin and its runtime, measured"},
			{Name: reserve, Bytes: uint64(min(allocatorCache, allocatorFloor+chunk+step+kvBytes)), Detail: "freed memory that MLX keeps for reuse, at most"},
		},
		GraphEntry: d.graph.ID, GraphReason: d.graphReason, Kernels: d.kernels, Context: uint32(d.context),
		BytesPerToken: uint64(perToken), Device: d.device.Name, Dtype: d.dtype.String(), Notes: d.notes(),
	}
	if states := d.planStates(); states != nil {
		p.Lines = append(p.Lines, states)
	}
	if sources := d.planSources(); sources != nil {
		p.Lines = append(p.Lines, sources)
	}
	for _, one := range d.beside {
		line, err := one.line()
		if err != nil {
			return nil, err
		}
		p.Lines = append(p.Lines, line)
	}
	d.planAdapters(p)
	for _, line := range p.Lines {
		p.TotalBytes += line.Bytes
	}
	d.planPrefix(p)
	return p, nil
}

// stagingBytes is what pieces of files take while one model is loaded after the other.
func (d *draft) stagingBytes() int64 {
	most := d.Weights.StagingBytes(d.target())
	for i := range d.beside {
		most = max(most, d.beside[i].stagingBytes())
	}
	return most
}

// planPrefix gives the prefix cache what was asked for, or what the budget leaves: a model is not refused for its sake.
func (d *draft) planPrefix(p *cladev1.Plan) {
	bytes, disk := d.prefixBytes, int64(0)
	if d.diskBytes > 0 {
		disk = diskRuns * prefix.Run * int64(p.BytesPerToken)
	}
	if d.budget > 0 {
		bytes = max(0, min(bytes, d.budget-int64(p.TotalBytes)-disk))
	}
	if bytes == 0 && d.prefixBytes == 0 {
		return
	}
	detail := "what earlier requests begin with, at most"
	if bytes < d.prefixBytes {
		detail = fmt.Sprintf("%s; %d bytes were asked for, the budget leaves this", detail, d.prefixBytes)
	}
	lines := []*cladev1.MemoryLine{{Name: prefixes, Bytes: uint64(bytes), Detail: detail}}
	if d.diskBytes > 0 && bytes > 0 {
		lines = append(lines, &cladev1.MemoryLine{Name: "prefix disk", Bytes: uint64(disk), Detail: "runs on their way to and from files"})
	}
	for _, l := range lines {
		p.Lines, p.TotalBytes = append(p.Lines, l), p.TotalBytes+l.Bytes
	}
}

// diskRuns is how many runs lie in memory while they are written and read: one each way, and what Go has not collected yet.
const diskRuns = 4

// Lines that are limits too.
const (
	runAhead = "run-ahead"
	reserve  = "reserve"
	prefixes = "prefix cache"
)

// lineOf is the bytes of a line.
func lineOf(p *cladev1.Plan, name string) int64 {
	for _, l := range p.Lines {
		if l.Name == name {
			return int64(l.Bytes)
		}
	}
	return 0
}

// sampledRows is how many rows of the vocabulary's width sampling holds at once: logits, their filtered copies, noise.
const sampledRows = 12

// sharedTokens is what the caches of several rows hold together where a context alone is not more: rows are many, and few of
// them are long at once. A row that finds no room waits, or is computed again later.
const sharedTokens = 16384

// kvTokens is how many tokens the caches of all rows hold together.
func (d *draft) kvTokens() int {
	one := kv.Capacity(d.context)
	return min(d.rows*one, max(one, sharedTokens))
}

// checkDeterministic refuses what has no proof. The kernels have one for every dtype; stock attention adds a query's keys up in an
// order that depends on how many of them there are in the call.
func (d *draft) checkDeterministic() error {
	why := ""
	if d.Uncertain != nil {
		why = d.Uncertain(d.context)
	}
	switch {
	case !d.deterministic || d.library != nil && why == "":
		return nil
	case d.library != nil:
		return unhonoured("deterministic", "%s: what a token gets depends on how the prompt is cut", why).WithNext("use deterministic=false")
	}
	return unhonoured("deterministic", "stock operations on %s: what they give a token depends on how the prompt is cut", d.device.Name).
		WithNext("use kernels=auto on a CPU, or deterministic=false")
}

// cutChunk keeps an evaluation's activations within transientBytes.
func (d *draft) cutChunk() {
	fits := int(transientBytes / max(1, d.tokenBytes()))
	d.chunk = max(1, min(d.chunk, fits))
}
