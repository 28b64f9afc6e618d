package dense

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// softcapBound is for rows that bend scores or logits by tanh, whose last bits two libraries do not share.
const softcapBound = 1e-4

// rowNames are the checkpoints of rows that run here: one of each, all with the tag full.
func rowNames() []string {
	return slices.DeleteFunc(tiny.DenseNames(), func(name string) bool { return !allRows && !strings.HasSuffix(name, "-a") })
}

func TestEveryRowHasItsCheckpoints(t *testing.T) {
	var covered []string
	for _, c := range tiny.Dense() {
		kind := c.Config["model_type"].(string)
		_, ok := rows[kind]
		require.True(t, ok, "%s: no row %s", c.Name, kind)
		covered = append(covered, kind)
	}
	for kind := range rows {
		if kind != "llama" { // has its own, one for each of its switches
			require.GreaterOrEqual(t, len(slices.DeleteFunc(slices.Clone(covered), func(k string) bool { return k != kind })), 1, kind)
		}
	}
	var names []string
	for _, g := range readGoldens(t, "rows.json") {
		names = append(names, g.Name)
	}
	require.ElementsMatch(t, tiny.DenseNames(), names, "run testdata/rows.py again")
}

// Logits after prompts and the greedy ids of every row are mlx-lm's, on the kernels and on stock operations.
func TestRowsEqualMLXLM(t *testing.T) {
	for _, g := range readGoldens(t, "rows.json") {
		if !slices.Contains(rowNames(), g.Name) {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				if kernels != nil && !strings.HasSuffix(g.Name, "-a") {
					return // its heads are none that the attention kernel takes; a plan says so
				}
				e := openOn(t, tinyPaths[g.Name], weights.Target{DType: mlx.Float32, Kernels: kernels}, 512)
				most := 0.0
				for length := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					d := distance(g.lastRow(t, length), logits(t, e, tiny.Prompt(n, g.Vocab))[n-1])
					most = max(most, d)
					require.LessOrEqual(t, d, boundOf(g.Name), "prefill of %d", n)
				}
				t.Logf("largest difference: %.1e", most)
				got := generate(t, e, tiny.Prompt(7, g.Vocab), &cladev1.GenerateStart{
					MaxTokens: ptr(uint32(len(g.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
				})
				require.Equal(t, g.Greedy, got.ids)
			})
		})
	}
}

func boundOf(name string) float64 {
	kind := name[:strings.LastIndex(name, "-")]
	if row := rows[kind]; row.AttnCap != "" || row.FinalCap != "" {
		return softcapBound
	}
	return oracleBound
}

// On the kernels a row's bits do not depend on how the prompt is cut.
func TestRowsDoNotDependOnThePrefillChunk(t *testing.T) {
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err)
	for _, name := range rowNames() {
		a, err := artifact.Open(tinyPaths[name])
		require.NoError(t, err)
		refused := readConfig(t, a).uncertain(512) != "" // in deterministic mode
		require.NoError(t, a.Close())
		if refused || !strings.HasSuffix(name, "-a") {
			continue // heads that the attention kernel does not take
		}
		t.Run(name, func(t *testing.T) {
			target := weights.Target{DType: mlx.Float32, Kernels: k}
			ids := tiny.Prompt(90, 199)
			require.Equal(t, logits(t, openOn(t, tinyPaths[name], target, 512), ids), logits(t, openOn(t, tinyPaths[name], target, 7), ids))
		})
	}
}

// exactTable is what docs/plugins/rows.md says of rows at bfloat16; -update writes it.
const exactTable = "../../../docs/plugins/rows.md"

// With stock operations at bfloat16 a row has the oracle's bits, or the documentation says that it has not.
func TestTheTableOfExactRowsIsTrue(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Log("the goldens' bits are those of MLX's loops on amd64")
		return
	}
	var exact, near []string
	for _, g := range readGoldens(t, "rows.json") {
		if !slices.Contains(rowNames(), g.Name) || g.BFloat16 == nil {
			continue
		}
		e := openOn(t, tinyPaths[g.Name], weights.Target{DType: mlx.BFloat16}, 512)
		same := true
		for length, want := range g.BFloat16 {
			n, err := strconv.Atoi(length)
			require.NoError(t, err)
			same = same && digest(logits(t, e, tiny.Prompt(n, g.Vocab))[n-1]) == want
		}
		kind := strings.TrimSuffix(g.Name, "-a")
		if !strings.HasSuffix(g.Name, "-a") {
			continue
		}
		if same {
			exact = append(exact, kind)
		} else {
			near = append(near, kind)
		}
	}
	table := "| at bfloat16 on stock operations | rows |\n|---|---|\n| the oracle's bits | " + strings.Join(exact, ", ") + " |\n| other last bits | " +
		strings.Join(near, ", ") + " |\n"
	text, err := os.ReadFile(exactTable)
	require.NoError(t, err)
	made := regexp.MustCompile(`(?s)\| at bfloat16.*? \|\n\n`).ReplaceAllString(string(text), table+"\n")
	if os.Getenv("CLADE_UPDATE") != "" {
		require.NoError(t, os.WriteFile(exactTable, []byte(made), 0o644))
	}
	require.Equal(t, made, string(text), "CLADE_UPDATE=1 writes the table")
}

func digest(row []float32) string {
	h := sha256.New()
	for _, v := range row {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return hex.EncodeToString(h.Sum(nil))
}
