package loader

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMachineMemoryIsKnownHere(t *testing.T) {
	total, available := MachineMemory()
	require.NotZero(t, total)
	require.NotZero(t, available)
	require.LessOrEqual(t, available, total)
}
