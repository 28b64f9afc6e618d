package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/echo"
)

// envFault makes the test binary the echo plugin with this fault.
const envFault = "CLADE_TEST_FAULT"

func TestMain(m *testing.M) {
	fault, isPlugin := os.LookupEnv(envFault)
	if isPlugin && os.Getenv(contract.Handshake().MagicCookieKey) != "" && slices.Contains(serverFaults, fault) {
		serveMutant(fault)
		os.Exit(0)
	}
	if isPlugin {
		plugin.Main(echo.Family(echo.Version, echo.Fault(fault)))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// options start the test binary as the echo plugin.
func options(t *testing.T, fault string, shape echo.Shape) Options {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, echo.WriteModel(dir, shape))
	adapters := []string{filepath.Join(dir, "..", "one"), filepath.Join(dir, "..", "two")}
	for i, path := range adapters {
		require.NoError(t, echo.WriteAdapter(path, uint64(i)))
	}
	return Options{Path: exe, Model: dir, Adapters: adapters, Runtime: "/nonexistent", Env: []string{envFault + "=" + fault, "GORACE=atexit_sleep_ms=0"}}
}

func TestTheEchoFamilyKeepsTheContract(t *testing.T) {
	r, err := Run(t.Context(), options(t, "", echo.Shape{StepMicros: 300}))
	require.NoError(t, err)
	for _, x := range r.Results {
		require.NotEqual(t, Failed, x.Status, "%s: %s", x.Name, x.Reason)
		if strings.HasPrefix(x.Name, "adapters-") {
			require.Equal(t, Passed, x.Status, "%s: %s", x.Name, x.Reason)
		}
	}
}
