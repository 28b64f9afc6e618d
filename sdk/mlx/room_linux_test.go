package mlx

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// Trap of DESIGN section 9: an allocation that cannot be had on the CPU is SIGSEGV.
func TestMemoryThatIsNotThereIsAnErrorNotACrash(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		a, mem, err := s.Empty(Float32, 1<<30, 1<<12)
		require.True(t, a.Inert())
		require.Nil(t, mem)
		return err
	})
	require.ErrorContains(t, err, "16777216 MiB wanted")
	require.Equal(t, contract.OutOfMemory, contract.KindOf(err))
}

func TestMeminfo(t *testing.T) {
	n, err := parseMeminfo([]byte("MemTotal: 10 kB\nMemAvailable:  4 kB\nSwapFree: 1 kB\n"))
	require.NoError(t, err)
	require.EqualValues(t, 5<<10, n)
	_, err = parseMeminfo([]byte("MemTotal: 10 kB\n"))
	require.ErrorContains(t, err, "no MemAvailable")
	_, err = parseMeminfo([]byte("MemAvailable: x kB\n"))
	require.ErrorContains(t, err, "is no size")
}
