package compose

import (
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

func drawInput(rt *rapid.T) Input {
	number := func(name string, most int) uint32 { return uint32(rapid.IntRange(0, most).Draw(rt, name)) }
	in := Input{
		Wishes: Wishes{
			Device:  rapid.SampledFrom([]string{"", "auto", "cpu-x86_64-avx512", "cuda-sm90"}).Draw(rt, "device"),
			DType:   rapid.SampledFrom([]string{"", "native", "float32", "bfloat16"}).Draw(rt, "dtype"),
			KV:      rapid.SampledFrom([]string{"", "native", "f32", "4", "affine:8g32@100", "turbo", "config", "layers:0-3=4"}).Draw(rt, "kv"),
			Context: number("context", 4096), Threads: number("threads", 8),
			Kernels:       rapid.SampledFrom([]string{"", "auto", "require", "off"}).Draw(rt, "kernels"),
			Pin:           rapid.SampledFrom([]string{"", "none", "0-3", "5,2"}).Draw(rt, "pin"),
			NUMA:          rapid.SampledFrom([]string{"", "none", "interleave", "1"}).Draw(rt, "numa"),
			Deterministic: rapid.SampledFrom([]string{"", "auto", "true", "false"}).Draw(rt, "deterministic"),
			Paging:        rapid.SampledFrom([]string{"", "auto", "true", "false"}).Draw(rt, "paging"),
			Rows:          number("rows", 8), PrefillChunk: number("chunk", 512), MaxGeneration: number("generation", 300),
		},
		Model: Model{
			Format: rapid.SampledFrom([]string{"safetensors", "gguf"}).Draw(rt, "format"), FloatDType: "bfloat16",
			MaxContext: 4096 + number("longest", 4096), Layers: 8, KV: []artifact.KVLayer{{Layer: 1, Bits: 4, Group: 64}},
		},
		Family:  Family{KV: rapid.SampledFrom([]string{"", "f32"}).Draw(rt, "family kv"), Rows: number("family rows", 2), Context: number("family context", 1) * 2048, MaxGeneration: number("family generation", 1) * 128},
		Machine: Machine{TotalBytes: 1 << 33, BudgetBytes: 1 << 32, BudgetSet: rapid.Bool().Draw(rt, "budget")},
		Paging:  func(family.KV) (string, error) { return "", nil },
	}
	if rapid.Bool().Draw(rt, "drafts") {
		in.Draft = &cladev1.Draft{Kind: "two-model", Dir: new("/d"), Graph: new("g"), Depth: new(number("depth", 8))}
	}
	if rapid.Bool().Draw(rt, "adapts") {
		in.Adapters = []string{"/a", "/b"}
	}
	refuses := map[string]bool{}
	for _, path := range []string{"paging", "deterministic", "kv.turbo", "prefill_chunk", "draft.depth", "adapters"} {
		refuses[path] = rapid.Bool().Draw(rt, "lacks "+path)
	}
	in.Declares = func(path string) bool { return !refuses[path] }
	return in
}

func bound(rt require.TestingT, in Input) (*Composition, error) {
	c, err := Resolve(in)
	if err != nil {
		return nil, err
	}
	plan := &cladev1.Plan{Device: c.Proto.GetDevice()}
	if plan.Device == "" {
		plan.Device = "cpu-x86_64-avx2"
	}
	_, err = c.Bind(plan)
	require.NoError(rt, err)
	changed, err := c.Bind(plan)
	require.NoError(rt, err)
	require.False(rt, changed, "what is bound stays")
	return c, nil
}

// wishesOf wishes for exactly what a composition says.
func wishesOf(t require.TestingT, c *Composition) Wishes {
	var w Wishes
	for _, f := range c.Fields {
		number := func() uint32 {
			n, err := strconv.ParseUint(f.Value, 10, 32)
			require.NoError(t, err)
			return uint32(n)
		}
		switch f.Name {
		case "device":
			w.Device = f.Value
		case "dtype":
			w.DType = f.Value
		case "kv":
			w.KV = f.Value
		case "context":
			w.Context = number()
		case "threads":
			w.Threads = number()
		case "kernels":
			w.Kernels = f.Value
		case "pin":
			w.Pin = f.Value
		case "numa":
			w.NUMA = f.Value
		case "deterministic":
			w.Deterministic = f.Value
		case "paging":
			w.Paging = f.Value
		case "kv_window":
			if f.Value != "0" {
				w.KVWindow = f.Value
			}
		case "kv_keep":
			if w.KVWindow != "" {
				w.KVWindow += "+" + f.Value
			}
		case "rows":
			w.Rows = number()
		case "prefill_chunk":
			w.PrefillChunk = number()
		case "max_generation":
			w.MaxGeneration = number()
		case "prefix_cache_bytes":
			w.PrefixCache = f.Value
		case "prefix_disk_bytes":
			w.PrefixDisk = uint64(number())
		case "adapter_bytes":
			w.AdapterBytes = uint64(number())
		case "prefix_disk_dir":
			if f.Value != nowhere {
				w.PrefixDiskDir = f.Value
			}
		case "draft", "programs", "adapters", "memory_budget_bytes", "machine_bytes": // chosen beside the wishes
		default:
			require.Fail(t, "a field that no wish can ask for: "+f.Name)
		}
	}
	return w
}

func TestResolutionIsDeterministicAndAResolvedRecordReResolvesToItself(t *testing.T) {
	resolved, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		in := drawInput(rt)
		c, err := bound(rt, in)
		again, err2 := bound(rt, in)
		if err != nil {
			refused++
			require.EqualError(rt, err2, err.Error())
			require.Contains(rt, []contract.Kind{contract.UnsupportedOption, contract.InvalidArgument}, contract.KindOf(err))
			return
		}
		resolved++
		require.True(rt, proto.Equal(c.Proto, again.Proto))
		require.Equal(rt, c.Fields, again.Fields)
		fixed := in
		fixed.Wishes = wishesOf(rt, c)
		same, err := bound(rt, fixed)
		require.NoError(rt, err)
		require.True(rt, proto.Equal(c.Proto, same.Proto), "%v\n%v", c.Proto, same.Proto)
		require.Equal(rt, c.KV(), same.KV())
	})
	require.Positive(t, resolved)
	require.Positive(t, refused)
}

// Each wish alone changes what is resolved or is refused: none is read and forgotten.
func TestNoWishSurvivesUnread(t *testing.T) {
	in := Input{
		Model: Model{Format: "safetensors", FloatDType: "bfloat16", MaxContext: 8192}, Declares: all,
		Paging: func(family.KV) (string, error) { return "", nil },
	}
	base, err := Resolve(in)
	require.NoError(t, err)
	texts := map[string]string{
		"Device": "cuda-sm90", "DType": "float32", "KV": "4@9", "Kernels": "off", "Pin": "0", "NUMA": "0", "Deterministic": "false", "Paging": "true", "PrefixCache": "77", "KVWindow": "77",
		"PrefixDiskDir": "/elsewhere",
	}
	typ := reflect.TypeFor[Wishes]()
	for i := range typ.NumField() {
		name, other := typ.Field(i).Name, in
		f := reflect.ValueOf(&other.Wishes).Elem().Field(i)
		before := base
		if name == "PrefixDiskDir" { // it counts where there are files
			other.Wishes.PrefixDisk = 1
			f.SetString("/somewhere")
			before, err = Resolve(other)
			require.NoError(t, err)
		}
		if f.Kind() == reflect.String {
			require.NotEmpty(t, texts[name], "give this test a value for the new wish %s", name)
			f.SetString(texts[name])
		} else {
			f.SetUint(77)
		}
		c, err := Resolve(other)
		require.NoError(t, err, name)
		require.False(t, proto.Equal(before.Proto, c.Proto), name)
		users := slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Source == FromUser })
		require.True(t, users, "%s is said to be the user's", name)
	}
}

// Every field of the contract's composition is resolved; what goes beside the model is there if someone asked for it.
func TestEveryFieldOfTheContractIsResolved(t *testing.T) {
	in := Input{Model: Model{FloatDType: "bfloat16", MaxContext: 8192}, Declares: all, Machine: Machine{TotalBytes: 2, BudgetBytes: 1}}
	for _, asked := range []bool{false, true} {
		if asked {
			in.Wishes.Pin, in.Wishes.NUMA, in.Wishes.PrefixDisk, in.Wishes.PrefixDiskDir = "0", "0", 1, "/d"
			in.Draft, in.Adapters = &cladev1.Draft{Kind: "ngram", Depth: new(uint32(4))}, []string{"/a"}
		}
		c, err := bound(t, in)
		require.NoError(t, err)
		if asked {
			changed, err := c.UsePrograms([]string{"p"}, nil)
			require.NoError(t, err)
			require.True(t, changed)
			changed, err = c.UsePrograms([]string{"p"}, nil)
			require.NoError(t, err)
			require.False(t, changed, "frozen")
		}
		fields := c.Proto.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			name := string(fields.Get(i).Name())
			require.Contains(t, names(c), name)
			beside := slices.Contains([]string{"draft", "programs", "adapters", "pin", "numa", "prefix_disk_dir"}, name)
			require.Equal(t, !beside || asked, c.Proto.ProtoReflect().Has(fields.Get(i)), name)
		}
		require.Len(t, c.Fields, fields.Len())
	}
}

func names(c *Composition) []string {
	var out []string
	for _, f := range c.Fields {
		out = append(out, f.Name)
	}
	return out
}
