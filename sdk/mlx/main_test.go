package mlx

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var testRuntime *Runtime

// runtimeDir is where make setup puts the CPU runtime.
func runtimeDir() string {
	if dir := os.Getenv("CLADE_RUNTIME"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
}

func TestMain(m *testing.M) {
	r, err := Open(runtimeDir())
	if err != nil {
		fmt.Fprintln(os.Stderr, "no MLX runtime: run make setup:", err)
		os.Exit(1)
	}
	testRuntime = r
	code := m.Run()
	if n := LiveHandles(); code == 0 && n != 0 {
		fmt.Fprintf(os.Stderr, "%d array handles leaked\n", n)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newTestWorker is a worker that ends with the test, which then must have freed every handle.
func newTestWorker(t testing.TB) *Worker {
	t.Helper()
	w, err := testRuntime.NewWorker(CPU)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.Close())
		require.Zero(t, LiveHandles(), "array handles leaked")
	})
	return w
}

// do runs fn on a worker of its own.
func do(t testing.TB, fn func(s *Scope)) {
	t.Helper()
	w := newTestWorker(t)
	require.NoError(t, w.Do(context.Background(), func(s *Scope) error {
		fn(s)
		return s.Err()
	}))
}
