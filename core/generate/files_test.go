package generate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
)

func TestGenerationConfigSamplesOnlyWhenItSaysDoSample(t *testing.T) {
	tests := []struct {
		name, json  string
		temperature *float64
		topK        *uint32
	}{
		{"absent", `{}`, nil, nil},
		{"temperature without do_sample", `{"temperature": 0.6, "top_k": 20}`, nil, nil},
		{"do_sample false", `{"do_sample": false, "temperature": 0.6}`, nil, nil},
		{"do_sample true", `{"do_sample": true, "temperature": 0.6, "top_k": 20}`, new(0.6), new(uint32(20))},
		{"do_sample true, no temperature", `{"do_sample": true, "top_k": 0}`, new(1.0), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := artifact.ParseConfig("generation_config.json", []byte(tt.json))
			require.NoError(t, err)
			s, err := FromFiles(c)
			require.NoError(t, err)
			require.Equal(t, tt.temperature, s.Temperature)
			require.Equal(t, tt.topK, s.TopK)
		})
	}
}

func TestGenerationConfigOfTheWrongTypeIsAnError(t *testing.T) {
	c, err := artifact.ParseConfig("generation_config.json", []byte(`{"do_sample": true, "temperature": "hot"}`))
	require.NoError(t, err)
	_, err = FromFiles(c)
	require.ErrorContains(t, err, "temperature")
}
