//go:build full

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Real models from GGUF files give, through host and plugin, the ids that mlx-lm gives on the dequantized weights.
func TestRealModelsAnswerAsMLXLMThroughTheWholeStack(t *testing.T) {
	gemma := os.Getenv("CLADE_GEMMA3")
	require.NotEmpty(t, gemma, "CLADE_GEMMA3 is to name the file, as make test-full has it")
	for golden, model := range map[string]string{"smollm2.json": smollm2(t), "gemma3.json": gemma} {
		t.Run(golden, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(repository(), "plugins", "universal", "testdata", golden))
			require.NoError(t, err)
			var file struct {
				Cases []struct{ IDs, Greedy []int32 }
			}
			require.NoError(t, json.Unmarshal(data, &file))
			require.NotEmpty(t, file.Cases)
			for _, c := range file.Cases {
				var r struct {
					TokenIDs []int32 `json:"token_ids"`
				}
				jsonOf(t, &r, "generate", model, "--ids", write(t, filepath.Join(t.TempDir(), "ids"), c.IDs), "--max-tokens", fmt.Sprint(len(c.Greedy)),
					"--temperature", "0", "--ignore-eos", "--dtype", "float32", "--context", "1024", "--json")
				require.Equal(t, c.Greedy, r.TokenIDs)
			}
		})
	}
}
