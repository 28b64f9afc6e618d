package serve

import (
	"encoding/base64"
	"errors"
	"net/http"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

func TestOfficialClientGetsEmbeddings(t *testing.T) {
	engine := newFake()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "unused")
	r, err := c.Embeddings.New(t.Context(), openaigo.EmbeddingNewParams{
		Model: "tiny", Input: openaigo.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}}, Dimensions: openaigo.Int(32),
	})
	require.NoError(t, err)
	require.Len(t, r.Data, 2)
	require.EqualValues(t, 1, r.Data[1].Index)
	require.Equal(t, []float64{1, 0.5}, r.Data[1].Embedding)
	require.EqualValues(t, 6, r.Usage.PromptTokens)
	require.EqualValues(t, 6, r.Usage.TotalTokens)
	require.Equal(t, "tiny", r.Model)
	require.Equal(t, generate.EmbedRequest{Inputs: []generate.EmbedInput{{Text: "a"}, {Text: "b"}}, Dimensions: 32}, engine.embedded)

	for _, in := range []openaigo.EmbeddingNewParamsInputUnion{
		{OfString: param.NewOpt("a")}, {OfArrayOfTokens: []int64{1, 2}}, {OfArrayOfTokenArrays: [][]int64{{1, 2}}},
	} {
		_, err = c.Embeddings.New(t.Context(), openaigo.EmbeddingNewParams{Model: "tiny", Input: in, EncodingFormat: "float"})
		require.NoError(t, err)
		require.Len(t, engine.embedded.Inputs, 1)
	}
	require.Equal(t, []int32{1, 2}, engine.embedded.Inputs[0].IDs)

	engine.err = contract.Errorf(contract.UnsupportedOption, "tiny", "its graph llama gives no embeddings").WithNext("use a model of qwen3")
	_, err = c.Embeddings.New(t.Context(), openaigo.EmbeddingNewParams{Model: "tiny", Input: openaigo.EmbeddingNewParamsInputUnion{OfString: param.NewOpt("a")}})
	var e *openaigo.Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, http.StatusBadRequest, e.StatusCode)
	require.Contains(t, e.Message, "use a model of qwen3")
}

func TestEmbeddingsAsBase64AreLittleEndianFloat32(t *testing.T) {
	engine := newFake()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	r := do(t, http.MethodPost, url+"/v1/embeddings", `{"model":"tiny","input":["a","b"],"encoding_format":"base64","instruction":"find it","user":"u"}`)
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, `"embedding":"`+base64.StdEncoding.EncodeToString([]byte{0, 0, 128, 63, 0, 0, 0, 63})+`"`)
	require.Equal(t, "find it", engine.embedded.Instruction)
}

func TestAnEmbeddingsBodyIsUnderstoodCompletelyOrRefusedByName(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake()})
	for body, mention := range map[string]string{
		`{"model":"tiny"}`: "input: is missing", `{"model":"tiny","input":null}`: "input: is missing",
		`{"model":"tiny","input":[]}`: "input: want a text, token ids", `{"model":"tiny","input":["a",1]}`: "input: want texts or lists",
		`{"model":"tiny","input":[null]}`: "input: want texts or lists", `{"model":"tiny","input":[[]]}`: "input: want texts or lists",
		`{"model":"tiny","input":{"a":1}}`: "input:", `{"model":"tiny","input":"a","dimensions":0}`: "dimensions:",
		`{"model":"tiny","input":"a","encoding_format":"int8"}`: "encoding_format:", `{"model":"tiny","input":"a","truncate":true}`: "truncate:",
		`{"model":"other","input":"a"}`: "no such model", `[]`: "body",
	} {
		r := do(t, http.MethodPost, url+"/v1/embeddings", body)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, r.status, body)
		require.Contains(t, r.body, mention, body)
	}
}
