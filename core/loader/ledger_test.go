package loader

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/sdk/contract"
)

// closer is an Evictor that closes the given models in order.
type closer struct {
	t      *testing.T
	models []*Model
	asked  []uint64
}

func (c *closer) Idle() uint64 {
	total := uint64(0)
	for _, m := range c.models {
		total += m.PlannedBytes()
	}
	return total
}

func (c *closer) Evict(ctx context.Context, bytes uint64) {
	c.asked = append(c.asked, bytes)
	for freed := uint64(0); freed < bytes && len(c.models) > 0; c.models = c.models[1:] {
		freed += c.models[0].PlannedBytes()
		require.NoError(c.t, c.models[0].Close(ctx))
	}
}

// openIn opens the tiny model with a context: a plan of 1,000,000 + 1,000 a token.
func openIn(t *testing.T, h *Host, context_ uint32) (*Model, error) {
	t.Helper()
	d, err := h.Decide(tinyModel(t))
	require.NoError(t, err)
	p, err := d.Plan(t.Context(), Wishes{Wishes: compose.Wishes{Context: context_}})
	require.NoError(t, err)
	m, err := p.Open(t.Context(), nil)
	if err != nil {
		require.NoError(t, d.Close())
		return nil, err
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m, nil
}

func TestTheBudgetIsOfAllOpenModelsTogether(t *testing.T) {
	h := hostOf(t, newFake())
	h.Budget, h.Ledger = 4_500_000, &Ledger{}
	first, err := openIn(t, h, 1024) // 2,024,000
	require.NoError(t, err)
	_, err = openIn(t, h, 2048) // 3,048,000 of the 2,476,000 that are left
	require.Equal(t, contract.MemoryAdmission, contract.KindOf(err))
	require.ErrorContains(t, err, "needs 2.9 MiB")
	require.ErrorContains(t, err, "2.4 MiB of the budget of 4.3 MiB are free, open models hold the rest")
	require.ErrorContains(t, err, "--context 1476", "1,000,000 + 1,000 a token in 2,476,000")
	_, err = openIn(t, h, 1280)
	require.NoError(t, err)
	require.NoError(t, first.Close(t.Context()))
	_, err = openIn(t, h, 1024)
	require.NoError(t, err, "a closed model gave its share back")
}

func TestIdleModelsMakeRoomOnlyWhenThatHelps(t *testing.T) {
	h := hostOf(t, newFake())
	c := &closer{t: t}
	h.Budget, h.Ledger = 4_500_000, &Ledger{Evictor: c}
	for range 2 {
		m, err := openIn(t, h, 1024)
		require.NoError(t, err)
		c.models = append(c.models, m)
	}
	_, err := openIn(t, h, 3840) // 4,840,000: more than everything
	require.Equal(t, contract.MemoryAdmission, contract.KindOf(err))
	require.Empty(t, c.asked, "nobody was closed in vain")
	_, err = openIn(t, h, 1280) // 2,280,000 of 452,000
	require.NoError(t, err)
	require.Equal(t, []uint64{2_280_000 - 452_000}, c.asked)
	require.Len(t, c.models, 1)
}

func TestARestartTakesTheShareItHad(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = []int32{65, 66}, 1
	h := hostOf(t, f)
	h.Budget, h.Ledger = 2_500_000, &Ledger{}
	m, err := openIn(t, h, 1024)
	require.NoError(t, err)
	f.processes[0].die(errCrash)
	require.NoError(t, m.Ready(t.Context()), "its own share is room for it")
	require.Len(t, h.Ledger.shares, 1)
	require.NoError(t, m.Close(t.Context()))
	require.Empty(t, h.Ledger.shares)
}

func TestAFailedOpeningLeavesNoShare(t *testing.T) {
	f := newFake()
	f.openErr = contract.Errorf(contract.ArtifactCorrupt, "model.safetensors", "ends early")
	h := hostOf(t, f)
	h.Budget, h.Ledger = 2_500_000, &Ledger{}
	_, err := openIn(t, h, 1024)
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.Empty(t, h.Ledger.shares)
}
