package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// A token takes one row a layer, whatever the heads: of minicpm3-a 48 values of a latent and 16 that rotate, in 4 layers, where the
// keys and values of its 6 heads would be 6 * (32 + 16) values.
func TestALatentTakesOneRowOfAToken(t *testing.T) {
	b := backend(t)
	for scheme, bytes := range map[string]uint64{"native": 4 * 64, "bf16": 2 * 64, "affine:8g32": 64 + 2*4, "turbo:k4v4": 32 + 4, "affine:4@20": 32 + 4} {
		c := kvComposition(t, scheme, 2, 8, 0)
		c.Kernels = ptr("require")
		plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["minicpm3-a"], c)})
		require.NoError(t, err)
		require.EqualValues(t, 4*bytes, plan.BytesPerToken, scheme)
		for _, l := range plan.Lines {
			if l.Name == "kv" {
				require.Contains(t, l.Detail, "4 of the layers keep a latent row of 64 columns for all heads")
			}
		}
	}
}
