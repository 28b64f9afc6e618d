package dense

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

var update = flag.Bool("update", false, "write testdata/revisions.json, after a revision was raised")

// revisions is what was computed at which revisions: testdata/revisions.json. Made again, once one of them was raised, by
// go test ./dense -run TestResultsMoveOnlyWithARevision -update.
type revisions struct {
	Engine, Graph int
	Kernels       string
	// Goldens is a digest of what the oracle says, Results of what the kernels give, to the bit, by architecture and checkpoint.
	Goldens string
	Results map[string]map[string]string
}

const revisionsFile = "../testdata/revisions.json"

// What is kept on disk of earlier revisions is used as if it had been computed now: whatever changes a result has to raise one.
func TestResultsMoveOnlyWithARevision(t *testing.T) {
	goldens, err := os.ReadFile("../testdata/llama.json")
	require.NoError(t, err)
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err, "run make setup")
	kernels, err := k.Revision()
	require.NoError(t, err)
	now := revisions{
		Engine: engine.Revision, Graph: Graph().Revision, Kernels: kernels, Goldens: fmt.Sprintf("%x", sha256.Sum256(goldens)),
		Results: map[string]map[string]string{runtime.GOARCH: {}},
	}
	for _, name := range []string{"llama-f32", "llama-affine4", "llama-gguf-q4_1.gguf", "llama-sliding"} {
		h := sha256.New()
		e := open(t, tinyPaths[name], mlx.Float32, 64)
		for _, row := range logits(t, e, tiny.Prompt(70, 256)) {
			require.NoError(t, binary.Write(h, binary.LittleEndian, row))
		}
		require.NoError(t, e.Close())
		now.Results[runtime.GOARCH][name] = fmt.Sprintf("%x", h.Sum(nil))
	}

	var before revisions
	data, err := os.ReadFile(revisionsFile)
	if err == nil {
		require.NoError(t, json.Unmarshal(data, &before))
	}
	same := before.Engine == now.Engine && before.Graph == now.Graph && before.Kernels == now.Kernels
	moved := before.Goldens != now.Goldens
	for name, sum := range before.Results[runtime.GOARCH] {
		moved = moved || now.Results[runtime.GOARCH][name] != sum
	}
	if moved && same {
		require.FailNow(t, "results or goldens moved and no revision did: raise engine.Revision, the graph's or CLADE_KERNELS_REVISION, then run with -update")
	}
	if *update {
		for arch, results := range before.Results { // others', where nothing moved
			if same && arch != runtime.GOARCH {
				now.Results[arch] = results
			}
		}
		data, err := json.MarshalIndent(now, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(revisionsFile, append(data, '\n'), 0o600))
		return
	}
	require.True(t, same, "a revision was raised: run with -update")
	require.NotEmpty(t, before.Results[runtime.GOARCH], "nothing is on record for this architecture: run with -update")
}
