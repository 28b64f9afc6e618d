package generate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
)

func all(string) bool  { return true }
func none(string) bool { return false }

func TestRequestBeatsServerBeatsModelBeatsFamily(t *testing.T) {
	r, err := Resolve(Layers{
		Request: Settings{Temperature: proto.Float64(0.1)},
		Server:  Settings{Temperature: proto.Float64(0.2), TopP: proto.Float64(0.5)},
		Model:   Settings{TopP: proto.Float64(0.6), TopK: proto.Uint32(7)},
		Family:  Settings{TopK: proto.Uint32(8), MinP: proto.Float64(0.3)},
	}, all)
	require.NoError(t, err)
	start := r.Start("r1", []int32{2}, 9)
	require.Equal(t, 0.1, start.Sampling.GetTemperature())
	require.Equal(t, 0.5, start.Sampling.GetTopP())
	require.EqualValues(t, 7, start.Sampling.GetTopK())
	require.Equal(t, 0.3, start.Sampling.GetMinP())
	require.NotNil(t, start.Sampling.Seed, "a sampled generation without a seed draws one")
	require.EqualValues(t, 9, start.GetMaxTokens())
}

func TestNothingSetIsGreedyAndNeedsNoSeed(t *testing.T) {
	r, err := Resolve(Layers{}, all)
	require.NoError(t, err)
	require.Zero(t, *r.Temperature)
	require.Nil(t, r.Seed)
}

func TestAskedOptionThatThePluginLacksIsRefusedByName(t *testing.T) {
	for field, s := range map[string]Settings{
		"presence_penalty":   {Presence: &Penalty{Value: 1}},
		"logit_bias":         {LogitBias: map[int32]float64{1: 2}},
		"min_p":              {MinP: proto.Float64(0.1)},
		"typical_p":          {TypicalP: proto.Float64(0.9)},
		"xtc_probability":    {XTCProbability: proto.Float64(0.5)},
		"xtc_threshold":      {XTCThreshold: proto.Float64(0.1)},
		"priority":           {Priority: proto.Int32(-1)},
		"logprobs":           {Logprobs: proto.Uint32(0)},
		"temperature":        {Temperature: proto.Float64(0.5)},
		"seed":               {Temperature: proto.Float64(0.5), Seed: proto.Uint64(1)},
		"repetition_penalty": {Repetition: &Penalty{Value: 1.1}},
	} {
		_, err := Resolve(Layers{Request: s}, func(p string) bool { return field == "seed" && p == "sampling.temperature" })
		require.Equal(t, contract.UnsupportedOption, contract.KindOf(err), field)
		require.ErrorContains(t, err, field)
	}
	_, err := Resolve(Layers{Request: Settings{Temperature: proto.Float64(0), Seed: proto.Uint64(3), TopP: proto.Float64(1), Presence: &Penalty{}}}, none)
	require.NoError(t, err, "values that change nothing need no support")
}

func TestOptionOnlyTheFilesAskForBecomesANote(t *testing.T) {
	r, err := Resolve(Layers{Model: Settings{Repetition: &Penalty{Value: 1.1}}}, none)
	require.NoError(t, err)
	require.Len(t, r.Notes, 1)
	require.Contains(t, r.Notes[0], "repetition_penalty")
	require.Nil(t, r.Start("r", nil, 1).Sampling.Repetition)
}

func TestImpossibleValuesAreRefusedByName(t *testing.T) {
	for field, s := range map[string]Settings{
		"top_p: is 0, which": {TopP: proto.Float64(0)},
		"temperature":        {Temperature: proto.Float64(-1)},
		"top_p":              {TopP: proto.Float64(1.5)},
		"typical_p: is 0":    {TypicalP: proto.Float64(0)},
		"xtc_probability":    {XTCProbability: proto.Float64(2)},
		"xtc_threshold":      {XTCThreshold: proto.Float64(0.6)},
		"max_tokens":         {MaxTokens: proto.Uint32(0)},
		"top_logprobs":       {Logprobs: proto.Uint32(21)},
		"stop":               {Stop: []string{""}},
		"logit_bias":         {LogitBias: map[int32]float64{-1: 2}},
		"repetition_penalty": {Repetition: &Penalty{}},
	} {
		_, err := Resolve(Layers{Request: s}, all)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), field)
		require.ErrorContains(t, err, field)
	}
}

// TestTemperatureOfEveryCombinationOfLayers holds who wins, and that no_think_temperature_cap bounds what files configure and never
// what a person asked for.
func TestTemperatureOfEveryCombinationOfLayers(t *testing.T) {
	const limit = 0.7
	for mask := range 32 {
		layer := func(bit int, v float64) Settings {
			if mask&(1<<bit) == 0 {
				return Settings{}
			}
			return Settings{Temperature: &v}
		}
		l := Layers{
			Request: layer(0, 1.1), Server: layer(1, 1.2), Model: layer(2, 1.3), Family: layer(3, 1.4),
			NoThinking: mask&16 != 0, TemperatureCap: limit,
		}
		want := 0.0
		switch {
		case mask&1 != 0:
			want = 1.1
		case mask&2 != 0:
			want = 1.2
		case mask&12 != 0 && l.NoThinking:
			want = limit
		case mask&4 != 0:
			want = 1.3
		case mask&8 != 0:
			want = 1.4
		}
		r, err := Resolve(l, all)
		require.NoError(t, err)
		require.InDelta(t, want, *r.Temperature, 0, "%05b", mask)
	}
}

func TestAPluginThatDraftsNothingHonoursARequestForNoDrafts(t *testing.T) {
	none := func(string) bool { return false }
	_, err := Resolve(Layers{Request: Settings{DraftDepth: new(uint32(3))}}, none)
	require.ErrorContains(t, err, "speculative.n_max: the model's plugin does not honour it")
	r, err := Resolve(Layers{Request: Settings{DraftDepth: new(uint32(0))}}, none)
	require.NoError(t, err)
	require.Nil(t, r.Start("id", nil, 1).Speculation)
	r, err = Resolve(Layers{Request: Settings{DraftDepth: new(uint32(0))}}, func(string) bool { return true })
	require.NoError(t, err)
	require.Zero(t, r.Start("id", nil, 1).GetSpeculation().GetDepth())
	require.NotNil(t, r.Start("id", nil, 1).Speculation)
}
