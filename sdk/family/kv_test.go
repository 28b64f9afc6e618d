package family

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func TestKVSpellings(t *testing.T) {
	for text, want := range map[string]struct {
		kv   KV
		text string
	}{
		"native":                {KV{Plain: "native"}, "native"},
		"off":                   {KV{Plain: "native"}, "native"},
		"f32":                   {KV{Plain: "f32"}, "f32"},
		"bf16":                  {KV{Plain: "bf16"}, "bf16"},
		"4":                     {KV{Bits: 4, Group: 64}, "affine:4"},
		"affine:8g64":           {KV{Bits: 8, Group: 64}, "affine:8"},
		"affine:4g32@5000":      {KV{Bits: 4, Group: 32, Start: 5000}, "affine:4g32@5000"},
		"8@0":                   {KV{Bits: 8, Group: 64}, "affine:8"},
		"turbo":                 {KV{K: 8, V: 3}, "turbo:k8v3"},
		"turbo:k2v8@7":          {KV{K: 2, V: 8, Start: 7}, "turbo:k2v8@7"},
		"layers:0=4,1=4,3=8g32": {KV{Layers: []artifact.KVLayer{{Layer: 0, Bits: 4, Group: 64}, {Layer: 1, Bits: 4, Group: 64}, {Layer: 3, Bits: 8, Group: 32}}}, "layers:0-1=4,3=8g32"},
	} {
		got, err := ParseKV(text)
		require.NoError(t, err, text)
		require.Equal(t, want.kv, got, text)
		require.Equal(t, want.text, got.String())
	}
}

func TestImpossibleKVSchemesAreRefused(t *testing.T) {
	for text, mention := range map[string]string{
		"":               "is no KV scheme",
		"int4":           "is no KV scheme",
		"config":         "is no KV scheme",
		"-4":             "is no KV scheme",
		"7":              "has 7 bits; stored are 2, 3, 4, 5, 6, 8",
		"affine:":        "ends early",
		"affine:4g":      "is not BITS or BITSgGROUP",
		"affine:4g48":    "has groups of 48; stored are 32, 64, 128",
		"turbo:k3v3":     "has 3 bits for keys; stored are 2, 4, 5, 8",
		"turbo:k8v6":     "has 6 bits for values; stored are 2, 3, 4, 5, 8",
		"turbo:8,3":      "is not turbo:kNvM",
		"layers:1":       "is not LAYER=BITS",
		"layers:2-1=4":   "has layers 2 to 1",
		"layers:1=4,1=8": "names layer 1 twice",
		"4@-1":           "has a start that is no token offset",
		"4@":             "has a start that is no token offset",
		"native@5":       "has a start, and nothing to convert",
	} {
		_, err := ParseKV(text)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), text)
		require.Equal(t, 2, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, mention, text)
		require.ErrorContains(t, err, "kv: ")
	}
}

func drawKV(rt *rapid.T) KV {
	k := KV{}
	if start := rapid.Int64Range(0, 1<<20).Draw(rt, "start"); start%2 == 0 {
		k.Start = start
	}
	bits, group := rapid.SampledFrom(affineBits), rapid.SampledFrom(affineGroups)
	switch rapid.IntRange(0, 3).Draw(rt, "kind") {
	case 0:
		return KV{Plain: rapid.SampledFrom([]string{NativeKV, F32KV, BF16KV}).Draw(rt, "plain")}
	case 1:
		k.Bits, k.Group = bits.Draw(rt, "bits"), group.Draw(rt, "group")
	case 2:
		k.K, k.V = rapid.SampledFrom(turboK).Draw(rt, "k"), rapid.SampledFrom(turboV).Draw(rt, "v")
	default:
		for l := range rapid.Int64Range(1, 60).Draw(rt, "layers") {
			if l == 0 || rapid.Bool().Draw(rt, "listed") {
				k.Layers = append(k.Layers, artifact.KVLayer{Layer: l, Bits: bits.Draw(rt, "bits"), Group: group.Draw(rt, "group")})
			}
		}
	}
	return k
}

func TestASchemeSurvivesItsSpellingAndTheWire(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := drawKV(rt)
		again, err := ParseKV(k.String())
		require.NoError(rt, err)
		require.Equal(rt, k, again)
		again, err = KVFromProto(k.Proto())
		require.NoError(rt, err)
		require.Equal(rt, k, again)
	})
	_, err := KVFromProto(&cladev1.KvScheme{Scheme: &cladev1.KvScheme_Affine{Affine: &cladev1.KvAffine{Bits: 7, Group: 64}}})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	_, err = KVFromProto(&cladev1.KvScheme{})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}

func FuzzParseKV(f *testing.F) {
	for _, s := range []string{"native", "affine:4g32@5000", "turbo:k8v3", "layers:0-47=4,3=8", "4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKV(text)
		if err != nil {
			require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
			return
		}
		again, err := ParseKV(k.String())
		require.NoError(t, err)
		require.Equal(t, k.String(), again.String())
	})
}

func TestKVConfigThatNoCacheStoresIsCorrupt(t *testing.T) {
	k, err := LayersKV(optiqKV())
	require.NoError(t, err)
	require.Equal(t, "layers:0-2=4,3=8,4-5=4,6-8=8,9=4,10=8,11=4,12=8,13-47=4", k.String())
	_, err = LayersKV([]artifact.KVLayer{{Layer: 3, Bits: 7, Group: 64}})
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.ErrorContains(t, err, "kv_config.json: layer 3 has 7 bits")
}

// Uniform schemes convert every attention cache, per-layer ones only those listed, turbo only full attention; linear
// states never convert.
func TestSchemesStoreOnlyTheLayersTheyConvert(t *testing.T) {
	g := Geometry{Layers: []LayerCache{
		{Kind: FullLayer, Heads: 1, KeyDim: 64, ValueDim: 64},
		{Kind: SlidingLayer, Heads: 1, KeyDim: 64, ValueDim: 64, Window: 10},
		{Kind: LinearLayer, StateBytes: 1000},
		{Kind: FullLayer, Heads: 1, KeyDim: 64, ValueDim: 64, Shared: true},
	}}
	const f32, half, four, eight = 512, 256, 64 + 8, 128 + 8
	for text, want := range map[string]int64{
		"native":         100*f32 + 10*f32 + 1000,
		"bf16":           100*half + 10*half + 1000,
		"f32":            100*f32 + 10*f32 + 1000,
		"4":              100*four + 10*four + 1000,
		"4@100":          100*f32 + 10*f32 + 1000,
		"4@99":           100*four + 10*four + 1000,
		"layers:1=8":     100*f32 + 10*eight + 1000,
		"layers:0=4,1=8": 100*four + 10*eight + 1000,
		"layers:2=4,3=4": 100*f32 + 10*f32 + 1000,
		"turbo":          100*(68+28) + 10*f32 + 1000,
		"turbo:k4v4":     100*(36+36) + 10*f32 + 1000,
	} {
		k, err := ParseKV(text)
		require.NoError(t, err)
		require.Equal(t, want, g.SchemeBytes(100, 1, k, 4), text)
		require.Equal(t, 2*want, g.SchemeBytes(100, 2, k, 4), text)
	}
}

// SmolLM2's figures in docs/kv.md are what buffers take; heads of 80 have blocks of 16.
func TestTurboIsCountedAsItIsStored(t *testing.T) {
	smol := Geometry{Layers: slices.Repeat([]LayerCache{{Kind: FullLayer, Heads: 3, KeyDim: 64, ValueDim: 64}}, 30)}
	odd := Geometry{Layers: []LayerCache{{Kind: FullLayer, Heads: 2, KeyDim: 80, ValueDim: 80}}}
	for text, want := range map[string][2]int64{"turbo": {8640, 2 * 4 * (5 + 20 + 5 + 8)}, "turbo:k4v4": {6480, 2 * 4 * 2 * 15}, "turbo:k4v3": {5760, 2 * 4 * (15 + 13)}} {
		k, err := ParseKV(text)
		require.NoError(t, err)
		require.Equal(t, want[0], smol.SchemeBytes(1, 1, k, 4), text)
		require.Equal(t, want[1], odd.SchemeBytes(1, 1, k, 4), text)
	}
}

func TestPagingWantsADeclaredFamilyAndFullLayers(t *testing.T) {
	parsed := func(graph, cfg string) Parsed {
		p, err := recordOf(t, graph).ParseConfig(config(t, cfg), artifact.Config{})
		require.NoError(t, err)
		return p
	}
	gemma := parsed("gemma4", `{"model_type":"gemma4","text_config":{}}`)
	for _, text := range []string{"native", "bf16", "4", "3", "4@5", "turbo", "layers:0=4"} {
		k, err := ParseKV(text)
		require.NoError(t, err)
		why, err := gemma.Paging(k)
		require.NoError(t, err)
		require.Empty(t, why, text)
	}
	sliding := parsed("gemma4", `{"model_type":"gemma4","text_config":{"num_hidden_layers":2,"num_kv_shared_layers":0,"layer_types":["sliding_attention","sliding_attention"]}}`)
	why, err := sliding.Paging(KV{Plain: NativeKV})
	require.NoError(t, err)
	require.Equal(t, "no layer attends to all positions", why)
	why, err = parsed("glm5.2", glm52(`"eos_token_id":5`)).Paging(KV{Plain: F32KV})
	require.NoError(t, err)
	require.Equal(t, "the family does not page its cache", why)
}

func TestScoresAreWrittenOnlyWhereAttentionIsNotFused(t *testing.T) {
	layer := func(kind LayerKind, dim, window int64) Geometry {
		return Geometry{Layers: []LayerCache{{Kind: kind, KeyDim: dim, Window: window}, {Kind: LinearLayer, KeyDim: 256}}}
	}
	require.Equal(t, int64(8*2048*8192*2), layer(FullLayer, 256, 0).ScoreBytes(8, 2048, 8192))
	require.Equal(t, int64(8*100*100*2), layer(FullLayer, 512, 0).ScoreBytes(8, 2048, 100))
	require.Equal(t, int64(8*2048*(512+2048)*2), layer(SlidingLayer, 256, 512).ScoreBytes(8, 2048, 8192))
	for _, dim := range fusedHeads {
		require.Zero(t, layer(FullLayer, dim, 0).ScoreBytes(8, 2048, 8192))
	}
}
