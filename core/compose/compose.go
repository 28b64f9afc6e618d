// Package compose resolves the composition of one load: device, dtype, KV scheme, context, threads and the rest, each
// with the source that decided it: the user, the model's files, the family, or a default.
//
// Invariants: every field that reaches the plugin has a value; a value the user asked for and the plugin does not declare
// is refused by name; a default that the plugin does not declare is not sent, because the plugin then has no choice to
// make. The device "auto" stays open until the plugin's first plan names the exact one. Not for: judging whether it fits
// (core/loader admits the plan).
package compose

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Source says who decided a field.
type Source string

// The sources, strongest first.
const (
	FromUser    Source = "user"
	FromFiles   Source = "model files"
	FromFamily  Source = "family"
	FromDefault Source = "default"
)

// Field is one resolved field, as `clade show` prints it.
type Field struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Wishes are what a person asked for; zero values and "auto" ask for nothing.
type Wishes struct {
	Device        string
	DType         string
	KV            string
	Context       uint32
	Threads       uint32
	Kernels       string
	Pin           string // processors, such as 0-3,8
	NUMA          string // interleave, or a memory node
	Deterministic string
	Paging        string
	KVWindow      string // TOKENS or TOKENS+KEEP
	Rows          uint32
	PrefillChunk  uint32
	MaxGeneration uint32
	PrefixCache   string // bytes; 0 keeps nothing
	// AdapterBytes is the room for adapters that are loaded later; 0: none can be.
	AdapterBytes uint64
	// PrefixDisk is how many bytes of files may keep it beyond the process, PrefixDiskDir their folder; 0: none.
	PrefixDisk    uint64
	PrefixDiskDir string
}

// Model is what the model's files say.
type Model struct {
	// Format is safetensors, gguf or colibri.
	Format string
	// FloatDType is the checkpoint's float dtype in the contract's spelling; empty when it has none.
	FloatDType string
	// MaxContext is the most positions it was made for; 0: it does not say.
	MaxContext uint32
	// KV is its kv_config.json; nil when it has none. Layers is how many layers it has; 0: it does not say.
	KV     []artifact.KVLayer
	Layers int64
}

// Family is the record's composition defaults; zero: none.
type Family struct {
	KV            string
	Rows          uint32
	Context       uint32
	MaxGeneration uint32
}

// Machine is what the host knows of where it runs.
type Machine struct {
	TotalBytes  uint64
	BudgetBytes uint64
	// BudgetSet is true when a person set the budget.
	BudgetSet bool
}

// Input of a resolution. Declares reports whether the plugin honours a composition path.
type Input struct {
	Wishes   Wishes
	Model    Model
	Family   Family
	Machine  Machine
	Declares func(path string) bool
	// Draft and Adapters (their ids) are what a person asked for beside the model; empty: nothing.
	Draft    *cladev1.Draft
	Adapters []string
	// Paging says why the model's cache cannot be paged under a scheme; empty when it can. nil: it never can.
	Paging func(family.KV) (string, error)
}

// defaults where neither the user, the files nor the family has an opinion.
const (
	// DefaultContext is what a model gets that names no context of its own.
	DefaultContext = 4096
	// defaultRows is how many requests run at once. Their caches share room (sdk/engine), so that rows cost little.
	defaultRows = 8
	// prefillChunk is one KV step of sdk/kv; results do not depend on it.
	prefillChunk = 256
)

// Composition is a resolved one.
type Composition struct {
	Proto  *cladev1.Composition
	Fields []Field
	// wanted is the device as asked for; auto until Bind.
	wanted string
	in     Input
	scheme family.KV
	pin    []uint32
}

// Resolve decides every field. Errors: InvalidArgument for a value no model takes, UnsupportedOption for one that this
// plugin does not honour.
func Resolve(in Input) (*Composition, error) {
	c := &Composition{Proto: &cladev1.Composition{}, in: in, wanted: in.Wishes.Device}
	for _, step := range []func() error{
		c.device, c.dtype, c.kv, c.window, c.paging, c.context, c.kernels, c.deterministic, c.counts, c.prefixes, c.placement, c.auxiliaries,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// put records a field and sends it if the plugin declares its path. write is nil for a field the plan decides.
func (c *Composition) put(name, path, value string, source Source, write func()) error {
	declared := c.in.Declares(path)
	if !declared && source == FromUser {
		return contract.Errorf(contract.UnsupportedOption, name, "the model's plugin does not honour it")
	}
	if declared && write != nil {
		write()
	}
	if declared || source != FromDefault {
		c.set(Field{name, value, source})
	}
	return nil
}

func (c *Composition) set(f Field) {
	for i := range c.Fields {
		if c.Fields[i].Name == f.Name {
			c.Fields[i] = f
			return
		}
	}
	c.Fields = append(c.Fields, f)
}

func asked(s string) bool { return s != "" && s != "auto" }

func (c *Composition) device() error {
	if !asked(c.wanted) {
		return nil // Bind
	}
	return c.put("device", "device", c.wanted, FromUser, func() { c.Proto.Device = &c.wanted })
}

// Bind freezes what waited for the plugin's first plan: the device it would run on, and what follows from its kind. It
// reports whether the composition changed, so that the plan is made again.
func (c *Composition) Bind(plan *cladev1.Plan) (bool, error) {
	before := proto.Clone(c.Proto)
	if !asked(c.wanted) && plan.GetDevice() != "" {
		device := plan.GetDevice()
		if err := c.put("device", "device", device, FromDefault, func() { c.Proto.Device = &device }); err != nil {
			return false, err
		}
		c.set(Field{"device", device, FromDefault})
	}
	if c.in.Model.Format == "gguf" && !asked(c.in.Wishes.DType) && !onCPU(plan.GetDevice()) {
		if err := c.putDType("bfloat16", FromDefault); err != nil {
			return false, err
		}
	}
	if !asked(c.in.Wishes.Deterministic) && !onCPU(plan.GetDevice()) {
		if err := c.putDeterministic(false, FromDefault); err != nil {
			return false, err
		}
	}
	return !proto.Equal(before, c.Proto), nil
}

func onCPU(device string) bool { return device == "" || strings.HasPrefix(device, "cpu") }

// dtype native is the checkpoint's own float dtype; for GGUF float32 on the CPU and bfloat16 on a GPU (Bind).
func (c *Composition) dtype() error {
	switch w := c.in.Wishes.DType; {
	case w == "float32" || w == "bfloat16" || w == "float16":
		return c.putDType(w, FromUser)
	case asked(w) && w != "native":
		return contract.Errorf(contract.InvalidArgument, "dtype", "%q is not one of native, float32, bfloat16, float16", w)
	}
	if c.in.Model.Format != "gguf" && c.in.Model.FloatDType != "" {
		return c.putDType(c.in.Model.FloatDType, FromFiles)
	}
	return c.putDType("float32", FromDefault)
}

func (c *Composition) putDType(value string, source Source) error {
	return c.put("dtype", "dtype", value, source, func() { c.Proto.Dtype = &value })
}

// kv is the user's scheme, else the family's, else what the model computes in. config is what kv_config.json says; a model
// without that file is refused rather than stored unquantized.
func (c *Composition) kv() error {
	text, source := family.NativeKV, FromDefault
	switch {
	case asked(c.in.Wishes.KV):
		text, source = c.in.Wishes.KV, FromUser
	case c.in.Family.KV != "":
		text, source = c.in.Family.KV, FromFamily
	}
	k, err := c.parseKV(text)
	if err != nil {
		return err
	}
	for _, l := range k.Layers {
		if c.in.Model.Layers > 0 && l.Layer >= c.in.Model.Layers {
			return contract.Errorf(contract.InvalidArgument, "kv", "names layer %d of a model with %d", l.Layer, c.in.Model.Layers)
		}
	}
	if k.Start > 0 && !c.in.Declares("kv.start") {
		return contract.Errorf(contract.UnsupportedOption, "kv", "the model's plugin does not convert a cache at a later token (@%d)", k.Start)
	}
	c.scheme = k
	return c.put("kv", "kv."+k.Kind(), k.String(), source, func() { c.Proto.Kv = k.Proto() })
}

func (c *Composition) parseKV(text string) (family.KV, error) {
	if text != configKV {
		return family.ParseKV(text)
	}
	if len(c.in.Model.KV) == 0 {
		return family.KV{}, contract.Errorf(contract.InvalidArgument, "kv", "the model has no %s", artifact.KVConfigFile).
			WithNext("name a scheme, or leave it out")
	}
	return family.LayersKV(c.in.Model.KV)
}

// configKV is the wish for what the model's kv_config.json says.
const configKV = "config"

// KV is the resolved scheme.
func (c *Composition) KV() family.KV { return c.scheme }

// paging is off unless the user wants it, and then refused where the cache cannot be paged.
func (c *Composition) paging() error {
	on, source := false, FromDefault
	if w := c.in.Wishes.Paging; asked(w) {
		var err error
		if on, err = strconv.ParseBool(w); err != nil {
			return contract.Errorf(contract.InvalidArgument, "paging", "%q is not one of auto, true, false", w)
		}
		source = FromUser
	}
	if on {
		why := "the family does not page its cache"
		if c.in.Paging != nil {
			var err error
			if why, err = c.in.Paging(c.scheme); err != nil {
				return err
			}
		}
		if why != "" {
			return contract.Errorf(contract.UnsupportedOption, "paging", "%s", why)
		}
	}
	return c.put("paging", "paging", strconv.FormatBool(on), source, func() { c.Proto.Paging = &on })
}

// context is the user's, else the smaller of the family's and the model's own.
func (c *Composition) context() error {
	most := c.in.Model.MaxContext
	if w := c.in.Wishes.Context; w > 0 {
		if most > 0 && w > most {
			return contract.Errorf(contract.InvalidArgument, "context", "%d is more than the %d positions the model was made for", w, most)
		}
		return c.putContext(w, FromUser)
	}
	switch family := c.in.Family.Context; {
	case family > 0 && (most == 0 || family < most):
		return c.putContext(family, FromFamily)
	case most > 0:
		return c.putContext(most, FromFiles)
	}
	return c.putContext(DefaultContext, FromDefault)
}

func (c *Composition) putContext(n uint32, source Source) error {
	err := c.put("context", "context", strconv.FormatUint(uint64(n), 10), source, func() { c.Proto.Context = &n })
	if err != nil {
		return err
	}
	most, source := n, FromDefault
	if m := c.in.Family.MaxGeneration; m > 0 && m < n {
		most, source = m, FromFamily
	}
	if w := c.in.Wishes.MaxGeneration; w > 0 {
		if w > n {
			return contract.Errorf(contract.InvalidArgument, "max_generation", "%d is more than the context of %d", w, n)
		}
		most, source = w, FromUser
	}
	return c.put("max_generation", "max_generation", strconv.FormatUint(uint64(most), 10), source, func() { c.Proto.MaxGeneration = &most })
}

// ContextIsOpen reports whether nobody asked for this context, so that the host may take a smaller one that fits.
func (c *Composition) ContextIsOpen() bool {
	return c.in.Wishes.Context == 0 && c.in.Declares("context")
}

// Shrink takes a smaller context than the default because that one does not fit.
func (c *Composition) Shrink(context uint32) error { return c.putContext(context, FromDefault) }

func (c *Composition) kernels() error {
	value, source := "auto", FromDefault
	if asked(c.in.Wishes.Kernels) {
		value, source = c.in.Wishes.Kernels, FromUser
	}
	return c.put("kernels", "kernels", value, source, func() { c.Proto.Kernels = &value })
}

func (c *Composition) deterministic() error {
	w := c.in.Wishes.Deterministic
	if !asked(w) {
		return c.putDeterministic(true, FromDefault)
	}
	on, err := strconv.ParseBool(w)
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, "deterministic", "%q is not one of auto, true, false", w)
	}
	return c.putDeterministic(on, FromUser)
}

// Relax gives up a default that the plugin refuses by name. It reports whether the field was one nobody asked for.
func (c *Composition) Relax(field string) (bool, error) {
	if field != "deterministic" || asked(c.in.Wishes.Deterministic) || !c.Proto.GetDeterministic() {
		return false, nil
	}
	return true, c.putDeterministic(false, FromDefault)
}

func (c *Composition) putDeterministic(on bool, source Source) error {
	return c.put("deterministic", "deterministic", strconv.FormatBool(on), source, func() { c.Proto.Deterministic = &on })
}

// counts are maxima and sizes.
func (c *Composition) counts() error {
	threads, source := uint32(runtime.GOMAXPROCS(0)), FromDefault
	if c.in.Wishes.Threads > 0 {
		threads, source = c.in.Wishes.Threads, FromUser
	}
	rows, rowSource := uint32(defaultRows), FromDefault
	switch {
	case c.in.Wishes.Rows > 0:
		rows, rowSource = c.in.Wishes.Rows, FromUser
	case c.in.Family.Rows > 0:
		rows, rowSource = c.in.Family.Rows, FromFamily
	}
	chunk, chunkSource := uint32(prefillChunk), FromDefault
	if c.in.Wishes.PrefillChunk > 0 {
		chunk, chunkSource = c.in.Wishes.PrefillChunk, FromUser
	}
	m, budgetSource := c.in.Machine, FromDefault
	if m.BudgetSet && c.in.Declares("memory_budget_bytes") {
		budgetSource = FromUser
	}
	for _, err := range []error{
		c.put("threads", "threads", fmt.Sprint(threads), source, func() { c.Proto.Threads = &threads }),
		c.put("rows", "rows", fmt.Sprint(rows), rowSource, func() { c.Proto.Rows = &rows }),
		c.put("prefill_chunk", "prefill_chunk", fmt.Sprint(chunk), chunkSource, func() { c.Proto.PrefillChunk = &chunk }),
		c.put("memory_budget_bytes", "memory_budget_bytes", fmt.Sprint(m.BudgetBytes), budgetSource, func() { c.Proto.MemoryBudgetBytes = &m.BudgetBytes }),
		c.put("machine_bytes", "machine_bytes", fmt.Sprint(m.TotalBytes), FromDefault, func() { c.Proto.MachineBytes = &m.TotalBytes }),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
