package kernels

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/weights/quant"
)

// golden is a matrix of ../weights/quant/testdata/trellis.json: numpy's values, of which quant.Trellis has every bit.
type golden struct {
	Bits, Block, State, Axis, Out, In int
	Rings, Scales                     string
}

func (g golden) format() quant.Trellis {
	return quant.Trellis{Bits: g.Bits, Block: g.Block, State: g.State, Axis: g.Axis}
}

func goldens(t *testing.T) []golden {
	var file struct{ Cases []golden }
	data, err := os.ReadFile("../weights/quant/testdata/trellis.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

func (g golden) bytes(t *testing.T) (rings, scales []byte) {
	rings, err := base64.StdEncoding.DecodeString(g.Rings)
	require.NoError(t, err)
	scales, err = base64.StdEncoding.DecodeString(g.Scales)
	require.NoError(t, err)
	return rings, scales
}

// decoded is the matrix [out, in] of a format.
func decoded(f quant.Trellis, out, in int, rings, scales []byte) []float32 {
	by := make([]float32, len(scales)/4)
	quant.F32Row(by, scales)
	w, lines := make([]float32, out*in), out
	if f.Axis == 0 {
		lines /= f.Block
	}
	for i, each := 0, len(w)/lines; i < lines; i++ {
		n := each / f.Block
		f.Row(w[i*each:(i+1)*each], rings[i*n*f.RingBytes():], by[i*n:(i+1)*n])
	}
	return w
}

func floats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	quant.F32Row(out, raw)
	return out
}

func raw(values []float32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// emulator is the sources of one language as a program for the CPU.
type emulator struct {
	t    *testing.T
	path string
}

func newEmulator(t *testing.T, language string, cases []golden, atOnce ...int) emulator {
	dir := t.TempDir()
	var list strings.Builder
	for _, c := range cases {
		for _, r := range atOnce {
			fmt.Fprintf(&list, "CASE(%d, %d, %d, %d, %d)\n", c.Bits, c.Block, c.State, c.Axis, r)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cases.inc"), []byte(list.String()), 0o600))
	e := emulator{t, filepath.Join(dir, "emulate")}
	cmd := exec.Command("c++", "-std=c++17", "-O1", "-ffp-contract=off", "-w", "-I"+dir, "-D"+language, "-o", e.path, "testdata/emulate/emulate.cpp")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return e
}

func (e emulator) run(kind string, c golden, atOnce, rows int, input []byte) []float32 {
	rings, scales := c.bytes(e.t)
	args := []string{kind}
	for _, n := range []int{c.Bits, c.Block, c.State, c.Axis, atOnce, rows, c.In, c.Out} {
		args = append(args, strconv.Itoa(n))
	}
	cmd := exec.Command(e.path, args...)
	cmd.Stdin = bytes.NewReader(append(append(input, rings...), scales...))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(e.t, err, "%+v: %s", c.format(), stderr.String())
	return floats(out)
}

// The sources as they stand, compiled for the CPU: what they decode has numpy's bits, a row's products have the same bits whatever rows are
// beside it, and they are products.
func TestTrellisSourcesComputeOnAnEmulatedGPU(t *testing.T) {
	all := goldens(t)
	cases := []golden{all[0], all[1], all[4], all[9], all[14], all[15], all[16]} // 2, 3, 4, 5 and 8 bits; rings of one word; states of 32 bits
	for _, language := range []string{"CUDA", "METAL"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			e := newEmulator(t, language, cases, 1, 4)
			for _, c := range cases {
				rings, scales := c.bytes(t)
				w := decoded(c.format(), c.Out, c.In, rings, scales)
				var ids []byte
				for i := range c.Out {
					ids = binary.LittleEndian.AppendUint32(ids, uint32(i))
				}
				require.Equal(t, w, e.run("rows", c, 1, c.Out, ids), "%+v", c.format())

				ones := make([]float32, 4*c.In)
				for i := range 4 {
					ones[i*c.In+i*7] = 1
				}
				columns := e.run("linear", c, 4, 4, raw(ones))
				for i, got := range columns {
					require.Equal(t, w[i%c.Out*c.In+i/c.Out*7], got, "%+v", c.format())
				}

				x := make([]float32, 3*c.In)
				for i := range x {
					x[i] = float32(math.Sin(float64(i) * 1.7))
				}
				one, four := e.run("linear", c, 1, 3, raw(x)), e.run("linear", c, 4, 3, raw(x))
				require.Equal(t, one, four, "%+v", c.format())
				for i, got := range one {
					var want, size float64
					for j := range c.In {
						p := float64(x[i/c.Out*c.In+j]) * float64(w[i%c.Out*c.In+j])
						want, size = want+p, size+math.Abs(p)
					}
					require.InDelta(t, want, got, 1e-6*size, "%+v", c.format())
				}
			}
		})
	}
}

// mlx-c passes MLX's messages to printf as the format, and a compiler's message quotes the source.
func TestSourcesHoldNoPercentSign(t *testing.T) {
	files := 0
	require.NoError(t, fs.WalkDir(sources, "sources", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := sources.ReadFile(path)
		require.NotContains(t, string(text), "%", path)
		return err
	}))
	require.Equal(t, 6, files)
}
