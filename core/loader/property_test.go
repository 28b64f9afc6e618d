package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// requestOptions are all that a request of this test may ask for.
var requestOptions = []string{
	"max_tokens", "sampling.temperature", "sampling.top_p", "sampling.top_k", "sampling.min_p", "sampling.seed", "sampling.min_tokens",
	"stop_token_ids",
}

// opener opens the tiny model as wished and gives what reaches the plugin of a request.
func opener(t *testing.T, c Choices, w Wishes) (send func(generate.Settings) *cladev1.GenerateStart, end func()) {
	t.Helper()
	f := newFake()
	f.options = append(f.options, append([]string{"kernels", "prefill_chunk", "max_generation", "kv.affine"}, requestOptions...)...)
	f.table.Entries = []*cladev1.GraphEntry{{Id: "special", Serves: &cladev1.GraphKey{Device: new("cuda-sm90")}}, {Id: "llama"}}
	d, err := hostWith(t, f, denseImplementation).DecideWith(tinyModel(t), c)
	require.NoError(t, err)
	p, err := d.Plan(t.Context(), w)
	require.NoError(t, err)
	m, err := p.Open(t.Context(), nil)
	require.NoError(t, err)
	return func(request generate.Settings) *cladev1.GenerateStart {
		_, err := m.Generate(t.Context(), prompt("hello"), request, drop)
		require.NoError(t, err)
		start := proto.Clone(f.lastStart).(*cladev1.GenerateStart)
		start.RequestId = ""
		return start
	}, func() { require.NoError(t, m.Close(context.Background())) }
}

func drawRequest(rt *rapid.T) generate.Settings {
	s := generate.Settings{Seed: new(rapid.Uint64().Draw(rt, "seed")), MaxTokens: new(uint32(rapid.IntRange(1, 100).Draw(rt, "max")))}
	if rapid.Bool().Draw(rt, "sampled") {
		s.Temperature = new(rapid.Float64Range(0.1, 2).Draw(rt, "temperature"))
		s.TopP = new(rapid.Float64Range(0.1, 1).Draw(rt, "top_p"))
		s.TopK = new(uint32(rapid.IntRange(0, 50).Draw(rt, "top_k")))
		s.MinP = new(rapid.Float64Range(0, 0.5).Draw(rt, "min_p"))
	}
	return s
}

// What a request asks for reaches the plugin the same, however the model was opened: another profile, graph, implementation
// or composition changes no setting of a request.
func TestLoadingChangesNoRequestSetting(t *testing.T) {
	own := &family.Profile{
		ID: "mine", Graph: "universal-dense", Loader: "safetensors", Loop: family.Autoregressive, Fidelity: family.L3Measured, Specialization: family.GenericUse,
	}
	none := ""
	plain, end := opener(t, Choices{}, Wishes{})
	defer end()
	rapid.Check(t, func(rt *rapid.T) {
		var w Wishes
		w.KV = rapid.SampledFrom([]string{"", "f32", "4"}).Draw(rt, "kv")
		w.Rows = uint32(rapid.IntRange(0, 4).Draw(rt, "rows"))
		w.Kernels = rapid.SampledFrom([]string{"", "off", "auto"}).Draw(rt, "kernels")
		w.Deterministic = rapid.SampledFrom([]string{"", "true", "false"}).Draw(rt, "deterministic")
		w.DType = rapid.SampledFrom([]string{"", "float32", "bfloat16"}).Draw(rt, "dtype")
		w.Threads = uint32(rapid.IntRange(0, 4).Draw(rt, "threads"))
		w.PrefillChunk = uint32(rapid.IntRange(0, 64).Draw(rt, "chunk"))
		var c Choices
		switch rapid.IntRange(0, 4).Draw(rt, "choice") {
		case 0:
			c.Profile = own
		case 1:
			c.Implementation = "fast"
		case 2:
			w.Graph = "special"
		case 3:
			c.ArtifactFingerprint = &none
		}
		send, end := opener(t, c, w)
		defer end()
		for range 5 {
			request := drawRequest(rt)
			want, got := plain(request), send(request)
			require.True(rt, proto.Equal(want, got), "%v\n%v", want, got)
		}
	})
}
