//go:build full

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// A request that ends every process it is computed in fails alone; the 15 beside it finish with the tokens that they get without it.
func TestARequestThatAlwaysKillsFailsAloneAndTheOthersFinishUnchanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins", "universal")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	manifest, err := os.ReadFile(filepath.Join(repository(), "plugins", "universal", "plugin.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugin.yaml"), manifest, 0o600))
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "clade-universal"), "./plugins/universal/testdata/poison")
	build.Dir, build.Env = repository(), append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	ok(t, "plugin", "seal", dir)
	config := write(t, filepath.Join(t.TempDir(), "config.yaml"), "plugins:\n  dirs: ["+filepath.Dir(dir)+"]\n")

	s := startServer(t, talker(t), "--rows", "16", "--context", "2560", "--config", config)
	c := chatClient(t, s)
	cold := startRound(t, c, 60)
	cold.wg.Wait()
	for i := range killStreams {
		require.NoError(t, cold.errs[i])
	}
	for _, place := range []int{1, 300} { // in the first forward of its prompt, and in a later one
		r := startRound(t, c, 60)
		p := ask(8)
		p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("a", place) + "~~~")}
		_, err = c.Chat.Completions.New(t.Context(), p)
		var refused *openai.Error
		require.ErrorAs(t, err, &refused)
		require.Contains(t, refused.Message, "the request is given up")
		r.wg.Wait()
		for i := range killStreams {
			require.NoError(t, r.errs[i], "stream %d; %s", i, s.log)
			require.Equal(t, cold.texts[i], r.texts[i], "stream %d", i)
		}
	}
}
