package loader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

func TestCutVectorsHaveLengthOne(t *testing.T) {
	v, err := cut([]float32{3, 4, 12}, 2)
	require.NoError(t, err)
	require.InDeltaSlice(t, []float32{0.6, 0.8}, v, 1e-7)
	v, err = cut([]float32{0, 0}, 0)
	require.NoError(t, err)
	require.Equal(t, []float32{0, 0}, v)
	_, err = cut([]float32{1}, 2)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}

func TestWhatAFamilysEmbeddingsHaveNotIsRefusedByName(t *testing.T) {
	in := []generate.EmbedInput{{Text: "a"}}
	bare, full := &family.Embedding{Terminator: "<end>"}, &family.Embedding{Terminator: "<end>", Instruction: "{instruction}: {text}", MinDimensions: 32}
	require.NoError(t, checkEmbed(full, generate.EmbedRequest{Inputs: in, Instruction: "i", Dimensions: 32}))
	for _, c := range []struct {
		e       *family.Embedding
		q       generate.EmbedRequest
		kind    contract.Kind
		mention string
	}{
		{bare, generate.EmbedRequest{}, contract.InvalidArgument, "input"},
		{bare, generate.EmbedRequest{Inputs: in, Instruction: "i"}, contract.UnsupportedOption, "instruction"},
		{bare, generate.EmbedRequest{Inputs: in, Dimensions: 8}, contract.UnsupportedOption, "dimensions"},
		{full, generate.EmbedRequest{Inputs: in, Dimensions: 8}, contract.InvalidArgument, "dimensions"},
	} {
		err := checkEmbed(c.e, c.q)
		require.Equal(t, c.kind, contract.KindOf(err))
		require.ErrorContains(t, err, c.mention)
	}
}

func TestAModelWithoutEmbeddingsNamesAFamilyThatHasThem(t *testing.T) {
	d, err := corpusHost(t).Decide(sample(t, "smollm2-135m"))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	err = d.Embeds()
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
	require.ErrorContains(t, err, "universal-dense gives no embeddings; use a model of qwen3")
}
