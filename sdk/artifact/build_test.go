package artifact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// safetensorsFile lays out a header as given (no checks) and a payload of n bytes 0, 1, 2...
func safetensorsFile(header string, payload int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	out = append(out, header...)
	for i := range payload {
		out = append(out, byte(i))
	}
	return out
}

// modelDir writes files into a fresh directory; config.json is added when absent.
func modelDir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	if _, ok := files["config.json"]; !ok {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"llama"}`), 0o600))
	}
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

// requireCorrupt holds what every refusal promises: the Kind, one line, and a text that names file and part.
func requireCorrupt(t *testing.T, err error, mentions ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), err.Error())
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 600)
	for _, m := range mentions {
		require.Contains(t, err.Error(), m)
	}
}

// ggufFile builds a GGUF by hand; nothing in it is checked.
type ggufFile struct {
	version  uint32
	entries  [][]byte
	tensors  [][]byte
	lie      map[string]uint64 // "tensors" or "entries": a count to write instead of the true one
	pad      int
	payload  int
	truncate int
}

func (g ggufFile) bytes() []byte {
	out := []byte("GGUF")
	version := g.version
	if version == 0 {
		version = 3
	}
	out = binary.LittleEndian.AppendUint32(out, version)
	count := func(what string, n int) uint64 {
		if lie, ok := g.lie[what]; ok {
			return lie
		}
		return uint64(n)
	}
	out = binary.LittleEndian.AppendUint64(out, count("tensors", len(g.tensors)))
	out = binary.LittleEndian.AppendUint64(out, count("entries", len(g.entries)))
	for _, e := range g.entries {
		out = append(out, e...)
	}
	for _, t := range g.tensors {
		out = append(out, t...)
	}
	pad := g.pad
	if pad == 0 {
		pad = 32
	}
	for len(out)%pad != 0 {
		out = append(out, 0)
	}
	for i := range g.payload {
		out = append(out, byte(i))
	}
	return out[:len(out)-g.truncate]
}

func (g ggufFile) read() (*GGUFMetadata, []Tensor, error) {
	data := g.bytes()
	return readGGUF("m.gguf", bytes.NewReader(data), int64(len(data)))
}

func gstr(s string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
}

// gkv is one metadata entry; v may be uint32, int32, uint64, int64, float32, float64, bool, string or []byte (raw value
// with its type number in kind).
func gkv(key string, v any) []byte {
	out := gstr(key)
	u32 := func(n uint32) { out = binary.LittleEndian.AppendUint32(out, n) }
	u64 := func(n uint64) { out = binary.LittleEndian.AppendUint64(out, n) }
	switch v := v.(type) {
	case uint8:
		u32(ggufU8)
		out = append(out, v)
	case int8:
		u32(ggufI8)
		out = append(out, byte(v))
	case uint16:
		u32(ggufU16)
		out = binary.LittleEndian.AppendUint16(out, v)
	case int16:
		u32(ggufI16)
		out = binary.LittleEndian.AppendUint16(out, uint16(v))
	case uint32:
		u32(ggufU32)
		u32(v)
	case int32:
		u32(ggufI32)
		u32(uint32(v))
	case uint64:
		u32(ggufU64)
		u64(v)
	case int64:
		u32(ggufI64)
		u64(uint64(v))
	case float32:
		u32(ggufF32)
		u32(math.Float32bits(v))
	case float64:
		u32(ggufF64)
		u64(math.Float64bits(v))
	case bool:
		u32(ggufBool)
		if v {
			out = append(out, 1)
		} else {
			out = append(out, 0)
		}
	case string:
		u32(ggufString)
		out = append(out, gstr(v)...)
	case garray:
		u32(ggufArray)
		out = append(out, v.bytes()...)
	default:
		panic(fmt.Sprintf("gkv %T", v))
	}
	return out
}

// garray is an array value: element type, count to write, raw elements.
type garray struct {
	kind uint32
	n    uint64
	raw  []byte
}

func (a garray) bytes() []byte {
	out := binary.LittleEndian.AppendUint32(nil, a.kind)
	out = binary.LittleEndian.AppendUint64(out, a.n)
	return append(out, a.raw...)
}

func gstrings(list ...string) garray {
	a := garray{kind: ggufString, n: uint64(len(list))}
	for _, s := range list {
		a.raw = append(a.raw, gstr(s)...)
	}
	return a
}

// gtensor is one tensor entry; dims in ggml order, innermost first.
func gtensor(name string, kind uint32, offset uint64, dims ...uint64) []byte {
	out := binary.LittleEndian.AppendUint32(gstr(name), uint32(len(dims)))
	for _, d := range dims {
		out = binary.LittleEndian.AppendUint64(out, d)
	}
	out = binary.LittleEndian.AppendUint32(out, kind)
	return binary.LittleEndian.AppendUint64(out, offset)
}
