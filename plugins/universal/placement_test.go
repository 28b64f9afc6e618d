package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Processors and memory nodes that a machine has not, and a model that nothing could place, are refused at the plan.
func TestThreadsAndWeightsArePlacedOrRefused(t *testing.T) {
	b := backend(t)
	plan := func(c *cladev1.Composition) error {
		_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["llama-affine4"], c)})
		return err
	}
	t.Cleanup(func() { require.NoError(t, plan(&cladev1.Composition{})) }) // puts everything back
	for says, c := range map[string]*cladev1.Composition{
		"processor 1023 is not one that this process may use":              {Pin: []uint32{1023}, Threads: ptr(uint32(1))},
		"memory node 999 is not one of this machine's":                     {Numa: ptr("999")},
		"only the kernels' threads can be pinned, and this model runs w":   {Pin: []uint32{0}, Threads: ptr(uint32(1)), Kernels: ptr("off")},
		"only the kernels' weights can be placed, and this model runs wit": {Numa: ptr("0"), Kernels: ptr("off")},
	} {
		err := plan(c)
		require.ErrorContains(t, err, says)
		require.Equal(t, contract.UnsupportedOption, contract.KindOf(err), says)
	}
	for says, c := range map[string]*cladev1.Composition{
		"1 processors for 2 threads":               {Pin: []uint32{0}, Threads: ptr(uint32(2))},
		`"all" is not interleave or a memory node`: {Numa: ptr("all")},
	} {
		err := plan(c)
		require.ErrorContains(t, err, says)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), says)
	}
}
