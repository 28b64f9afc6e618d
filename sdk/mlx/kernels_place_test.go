package mlx

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allowedOf lists what the system says of each thread of the process: where it may run.
func allowedOf(t *testing.T) map[string]int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	require.NoError(t, err)
	out := map[string]int{}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if os.IsNotExist(err) {
			continue // ended meanwhile
		}
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(text), "Cpus_allowed_list:")
		line, _, _ := strings.Cut(after, "\n")
		out[strings.TrimSpace(line)]++
	}
	return out
}

func TestPinnedThreadsStayWhereTheyArePut(t *testing.T) {
	if runtime.GOOS != "linux" {
		require.ErrorContains(t, testKernels(t).Pin(0), "this system cannot pin threads")
		return
	}
	k := testKernels(t)
	w := newTestWorker(t) // one for all: MLX keeps a thread for each, where the kernels left it
	multiply := func() {
		require.NoError(t, w.Do(t.Context(), func(s *Scope) error {
			p := packDense(t, s, k, s.Zeros([]int{512, 64}, Float32), Float32)
			defer p.Close()
			return s.Eval(s.PackedLinear(s.Zeros([]int{40, 64}, Float32), PackedLinear{Weights: []*Packed{p}}))
		}))
	}
	require.NoError(t, k.SetThreads(3))
	multiply()
	before := allowedOf(t)
	t.Cleanup(func() { require.NoError(t, k.Pin()) })
	require.NoError(t, k.Pin(0, 0, 0))
	multiply()
	require.Equal(t, before["0"]+3, allowedOf(t)["0"], "two workers and the evaluating thread")
	require.NoError(t, k.SetThreads(2)) // new workers are pinned too
	multiply()
	require.GreaterOrEqual(t, allowedOf(t)["0"], before["0"]+2)
	require.NoError(t, k.Pin())
	multiply()
	require.Equal(t, before["0"], allowedOf(t)["0"], "lifted")
	for _, cpu := range []int{-1, 1023, 5000} {
		require.ErrorContains(t, k.Pin(cpu), "is not one that this process may use")
	}
}

func TestWeightsLieOnAMemoryNodeThatIsThere(t *testing.T) {
	k := testKernels(t)
	require.True(t, k.Places())
	require.ErrorContains(t, k.Place(999), "memory node 999 is not one of this machine's")
	nodes, err := os.ReadFile("/sys/devices/system/node/has_memory")
	if err != nil {
		require.ErrorContains(t, k.Place(0), "no memory nodes to choose from")
		return
	}
	t.Cleanup(func() { require.NoError(t, k.Place(Anywhere)) })
	if strings.TrimSpace(string(nodes)) == "0" {
		require.ErrorContains(t, k.Place(Interleave), "there is nothing to spread over")
	} else {
		require.NoError(t, k.Place(Interleave))
	}
	require.NoError(t, k.Place(0))
	before := boundPages(t)
	do(t, func(s *Scope) {
		p := packDense(t, s, k, s.Zeros([]int{4096, 256}, Float32), Float32)
		defer p.Close()
		require.Greater(t, boundPages(t), before, "a mapping bound to node 0")
	})
}

// boundPages counts the process's mappings that are bound to a node.
func boundPages(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/numa_maps")
	require.NoError(t, err)
	return strings.Count(string(maps), " bind:")
}
