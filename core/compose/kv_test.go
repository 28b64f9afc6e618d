package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

func TestKVIsTheUsersThenTheFamilysThenNative(t *testing.T) {
	model := Model{KV: []artifact.KVLayer{{Layer: 1, Bits: 8, Group: 64}, {Layer: 0, Bits: 4, Group: 64}}, Layers: 2}
	for name, c := range map[string]struct {
		wish, family string
		want         Field
	}{
		"nobody":         {"", "", Field{"kv", "native", FromDefault}},
		"family":         {"", "f32", Field{"kv", "f32", FromFamily}},
		"user":           {"native", "f32", Field{"kv", "native", FromUser}},
		"number":         {"4", "", Field{"kv", "affine:4", FromUser}},
		"the file":       {"config", "f32", Field{"kv", "layers:0=4,1=8", FromUser}},
		"turbo":          {"turbo", "", Field{"kv", "turbo:k8v3", FromUser}},
		"delayed affine": {"8@5000", "", Field{"kv", "affine:8@5000", FromUser}},
	} {
		got, err := Resolve(Input{Wishes: Wishes{KV: c.wish}, Family: Family{KV: c.family}, Model: model, Declares: all})
		require.NoError(t, err, name)
		require.Equal(t, c.want, field(t, got, "kv"), name)
		back, err := family.KVFromProto(got.Proto.GetKv())
		require.NoError(t, err)
		require.Equal(t, c.want.Value, back.String())
	}
}

func TestKVThatCannotBeHonouredIsRefused(t *testing.T) {
	plainOnly := func(path string) bool { return path == "kv.plain" }
	noStart := func(path string) bool { return path != "kv.start" }
	for name, c := range map[string]struct {
		wish     string
		model    Model
		declares func(string) bool
		kind     contract.Kind
		text     string
	}{
		"not declared":         {"4", Model{}, plainOnly, contract.UnsupportedOption, "kv: the model's plugin does not honour it"},
		"layers not declared":  {"layers:0=4", Model{}, plainOnly, contract.UnsupportedOption, "kv: the model's plugin does not honour it"},
		"turbo not declared":   {"turbo", Model{}, plainOnly, contract.UnsupportedOption, "kv: the model's plugin does not honour it"},
		"start not declared":   {"4@5", Model{}, noStart, contract.UnsupportedOption, "kv: the model's plugin does not convert a cache at a later token (@5)"},
		"no file":              {"config", Model{}, all, contract.InvalidArgument, "kv: the model has no kv_config.json; name a scheme, or leave it out"},
		"a layer too many":     {"layers:7=4", Model{Layers: 7}, all, contract.InvalidArgument, "kv: names layer 7 of a model with 7"},
		"a file of a larger":   {"config", Model{Layers: 2, KV: []artifact.KVLayer{{Layer: 2, Bits: 4, Group: 64}}}, all, contract.InvalidArgument, "kv: names layer 2 of a model with 2"},
		"a file nobody stores": {"config", Model{KV: []artifact.KVLayer{{Layer: 0, Bits: 7, Group: 64}}}, all, contract.ArtifactCorrupt, "kv_config.json: layer 0 has 7 bits; stored are 2, 3, 4, 5, 6, 8"},
	} {
		_, err := Resolve(Input{Wishes: Wishes{KV: c.wish}, Model: c.model, Declares: c.declares})
		require.Equal(t, c.kind, contract.KindOf(err), name)
		require.EqualError(t, err, c.text, name)
	}
}

func TestPagesAreRefusedWhereTheCacheCannotHaveThem(t *testing.T) {
	can := func(family.KV) (string, error) { return "", nil }
	cannot := func(k family.KV) (string, error) { return "not " + k.String(), nil }
	c, err := Resolve(Input{Wishes: Wishes{Paging: "true"}, Paging: can, Declares: all})
	require.NoError(t, err)
	require.Equal(t, Field{"paging", "true", FromUser}, field(t, c, "paging"))
	for text, in := range map[string]Input{
		"paging: the family does not page its cache":      {Wishes: Wishes{Paging: "true"}, Declares: all},
		"paging: not native":                              {Wishes: Wishes{Paging: "true"}, Paging: cannot, Declares: all},
		"paging: the model's plugin does not honour it":   {Wishes: Wishes{Paging: "true"}, Paging: can, Declares: func(p string) bool { return p != "paging" }},
		`paging: "maybe" is not one of auto, true, false`: {Wishes: Wishes{Paging: "maybe"}, Paging: can, Declares: all},
		"max_generation: 9 is more than the context of 8": {Wishes: Wishes{Context: 8, MaxGeneration: 9}, Declares: all},
	} {
		_, err := Resolve(in)
		require.EqualError(t, err, text)
		require.Equal(t, 2, contract.KindOf(err).ExitCode())
	}
}

// A GLM record says f32, one row, 4096 tokens, 128 to generate, and its cache is never paged: all of it holds unless the
// user set it.
func TestPerRecordDefaultsYieldToTheUserAlone(t *testing.T) {
	glm := Family{KV: "f32", Rows: 1, Context: 4096, MaxGeneration: 128}
	c, err := Resolve(Input{Family: glm, Model: Model{MaxContext: 202752}, Declares: all})
	require.NoError(t, err)
	for _, want := range []Field{
		{"kv", "f32", FromFamily}, {"rows", "1", FromFamily}, {"context", "4096", FromFamily}, {"max_generation", "128", FromFamily}, {"paging", "false", FromDefault},
	} {
		require.Equal(t, want, field(t, c, want.Name))
	}
	c, err = Resolve(Input{Wishes: Wishes{KV: "bf16", Rows: 2, Context: 8192, MaxGeneration: 64}, Family: glm, Declares: all})
	require.NoError(t, err)
	for _, want := range []Field{{"kv", "bf16", FromUser}, {"rows", "2", FromUser}, {"context", "8192", FromUser}, {"max_generation", "64", FromUser}} {
		require.Equal(t, want, field(t, c, want.Name))
	}
}

func TestPhaseRowsCountDraftsInVerification(t *testing.T) {
	for _, c := range []struct {
		comp *cladev1.Composition
		want uint32
	}{
		{&cladev1.Composition{}, 1},
		{&cladev1.Composition{Rows: new(uint32(4))}, 4},
		{&cladev1.Composition{Rows: new(uint32(4)), Draft: &cladev1.Draft{Depth: new(uint32(0))}}, 4},
		{&cladev1.Composition{Rows: new(uint32(4)), Draft: &cladev1.Draft{Depth: new(uint32(3))}}, 16},
		{&cladev1.Composition{Rows: new(uint32(1 << 31)), Draft: &cladev1.Draft{Depth: new(uint32(3))}}, 1<<32 - 1},
	} {
		require.Equal(t, c.want, PhaseRows(c.comp))
	}
}

func TestTheEstimateStopsAtTheLargestContextThatFits(t *testing.T) {
	in := FitInput{
		Geometry: family.Geometry{Layers: []family.LayerCache{{Kind: family.FullLayer, Heads: 1, KeyDim: 128, ValueDim: 128}}}, Heads: 1,
		WeightBytes: 1000, KV: family.KV{Plain: family.NativeKV}, ElementBytes: 2, Context: 10, MaxContext: 100_000,
		BudgetBytes: 1000 + 2048*transientBytes + 512*3000,
	}
	f := Estimate(in)
	require.Equal(t, int64(1000+10*512+10*transientBytes), f.TotalBytes)
	require.True(t, f.Fits)
	require.EqualValues(t, 3000, f.LargestContext)
	in.Context = 3001
	require.False(t, Estimate(in).Fits)
	in.Context = 3000
	require.True(t, Estimate(in).Fits)
	in.BudgetBytes = 999
	require.Zero(t, Estimate(in).LargestContext, "the weights alone do not fit")
	in.BudgetBytes, in.MachineBytes = 0, 1<<30
	require.EqualValues(t, 3<<28, Estimate(in).UsableBytes, "three quarters of the machine")
	require.Zero(t, TokensPerSecond(SpeedInput{BytesPerSecond: 1e9}))
}

// A GLM record's own defaults, unless the user set them: float32 latents, unpaged, one row.
func TestARecordsDefaultsAreItsOwnUnlessTheUserSetThem(t *testing.T) {
	offers, err := corefamily.Embedded()
	require.NoError(t, err)
	list, problems := corefamily.New(offers)
	require.Empty(t, problems)
	glm, ok := list.ByGraph("glm5.2")
	require.True(t, ok)
	r := glm.Record.Composition
	in := Input{
		Family: Family{KV: r.KV, Rows: uint32(r.Rows), Context: uint32(r.Context), MaxGeneration: uint32(r.MaxGeneration)},
		Model:  Model{Format: "colibri", MaxContext: 202752}, Declares: all,
		Paging: family.Parsed{Record: glm.Record}.Paging,
	}
	c, err := Resolve(in)
	require.NoError(t, err)
	for _, want := range []Field{
		{"kv", "f32", FromFamily}, {"paging", "false", FromDefault}, {"rows", "1", FromFamily}, {"context", "4096", FromFamily}, {"max_generation", "128", FromFamily},
	} {
		require.Equal(t, want, field(t, c, want.Name))
	}
	in.Wishes = Wishes{KV: "bf16", Rows: 2, Context: 8192, MaxGeneration: 64}
	c, err = Resolve(in)
	require.NoError(t, err)
	for _, want := range []Field{{"kv", "bf16", FromUser}, {"rows", "2", FromUser}, {"context", "8192", FromUser}, {"max_generation", "64", FromUser}} {
		require.Equal(t, want, field(t, c, want.Name))
	}
	in.Wishes = Wishes{Paging: "true"}
	_, err = Resolve(in)
	require.EqualError(t, err, "paging: the family does not page its cache")
}
