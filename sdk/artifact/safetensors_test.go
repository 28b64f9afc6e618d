package artifact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func readST(data []byte) ([]Tensor, map[string]string, error) {
	return readSafetensors("m.safetensors", bytes.NewReader(data), int64(len(data)), nil)
}

func TestSafetensorsHeaderGivesNamesTypesAndAbsoluteRanges(t *testing.T) {
	header := `{"__metadata__":{"format":"mlx"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},` +
		`"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"empty":{"dtype":"I64","shape":[0,3],"data_offsets":[12,12]},` +
		`"scalar":{"dtype":"U8","shape":[],"data_offsets":[12,13]}}  `
	data := safetensorsFile(header, 13)
	tensors, meta, err := readST(data)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "mlx"}, meta)
	start := int64(8 + len(header))
	require.Equal(t, []Tensor{
		{"b", F32, []int64{2, 1}, 8, "m.safetensors", start + 4},
		{"a", BF16, []int64{2}, 4, "m.safetensors", start},
		{"empty", I64, []int64{0, 3}, 0, "m.safetensors", start + 12},
		{"scalar", U8, []int64{}, 1, "m.safetensors", start + 12},
	}, tensors)
}

func TestSafetensorsRefusesBrokenHeaders(t *testing.T) {
	one := func(entry string) []byte { return safetensorsFile(`{"w":`+entry+`}`, 8) }
	length := func(n uint64) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), `{"w":1}`...)
	}
	for name, c := range map[string]struct {
		data    []byte
		mention string
	}{
		"empty file":             {nil, "header"},
		"truncated length word":  {[]byte{1, 2, 3}, "too few"},
		"header beyond the file": {length(1000), "beyond the file"},
		"header over the cap":    {length(100_000_001), "limit of 100000000"},
		"header of 2^63":         {length(1 << 63), "limit"},
		"header of length zero":  {length(0), "does not begin with {"},
		"header not an object":   {safetensorsFile(`[1]`, 0), "does not begin with {"},
		"space before the brace": {safetensorsFile(` {}`, 0), "does not begin with {"},
		"text after the object":  {safetensorsFile(`{} x`, 0), "after the end"},
		"invalid UTF-8":          {safetensorsFile("{\"\xff\":{}}", 0), "UTF-8"},
		"duplicate name": {safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},`+
			`"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), `"w" appears twice`},
		"duplicate name by escape": {safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},`+
			`"\u0077":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), `"w" appears twice`},
		"duplicate field":      {one(`{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}`), `"dtype" appears twice`},
		"missing dtype":        {one(`{"shape":[8],"data_offsets":[0,8]}`), "m.safetensors: w"},
		"one offset":           {one(`{"dtype":"U8","shape":[8],"data_offsets":[0]}`), "two data_offsets"},
		"three offsets":        {one(`{"dtype":"U8","shape":[8],"data_offsets":[0,8,9]}`), "more than 2"},
		"unknown dtype":        {one(`{"dtype":"Q9","shape":[8],"data_offsets":[0,8]}`), `unknown dtype "Q9"`},
		"ggml name as dtype":   {one(`{"dtype":"Q4_0","shape":[8],"data_offsets":[0,8]}`), `unknown dtype "Q4_0"`},
		"wrong dtype for span": {one(`{"dtype":"F32","shape":[8],"data_offsets":[0,8]}`), "takes 32 bytes, its data_offsets span 8"},
		"begin after end":      {one(`{"dtype":"U8","shape":[8],"data_offsets":[8,0]}`), "end before they begin"},
		"negative offset":      {one(`{"dtype":"U8","shape":[8],"data_offsets":[-8,0]}`), "whole number"},
		"fractional dimension": {one(`{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}`), "whole number"},
		"negative dimension":   {one(`{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}`), "whole number"},
		"dimension over int64": {one(`{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,8]}`), "whole number"},
		"shape product wraps":  {one(`{"dtype":"U8","shape":[4294967296,4294967296,16],"data_offsets":[0,8]}`), "63 bits"},
		"bytes wrap":           {one(`{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}`), "63 bits"},
		"half a byte of F4":    {one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`), "blocks of 2"},
		"end beyond file":      {one(`{"dtype":"U8","shape":[9],"data_offsets":[0,9]}`), "beyond the file's payload of 8"},
		"hole at the start":    {one(`{"dtype":"U8","shape":[4],"data_offsets":[4,8]}`), "bytes 0..4, between the header and w, are of no tensor"},
		"bytes after the last": {one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`), "4 bytes follow"},
		"overlap": {safetensorsFile(`{"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},`+
			`"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), "overlap a"},
		"hole in the middle": {safetensorsFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},`+
			`"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), "header: bytes 2..4, between a and b, are of no tensor: one is missing there"},
		"metadata that is no string": {safetensorsFile(`{"__metadata__":{"a":1}}`, 0), "header"},
		"deep nesting":               {one(`{"x":` + string(bytes.Repeat([]byte("["), 100_000))), "nested deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readST(c.data)
			requireCorrupt(t, err, "m.safetensors", c.mention)
		})
	}
}

// A header may claim a hundred million bytes; what is allocated must follow the file, not the claim.
func TestSafetensorsLyingLengthAllocatesNothing(t *testing.T) {
	data := append(binary.LittleEndian.AppendUint64(nil, 99_999_999), '{')
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := readST(data)
	runtime.ReadMemStats(&after)
	requireCorrupt(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestShardsMayNotShareATensorName(t *testing.T) {
	shard := safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	_, err := Open(modelDir(t, map[string][]byte{
		"model-00001-of-00002.safetensors": shard, "model-00002-of-00002.safetensors": shard,
	}))
	requireCorrupt(t, err, "model-00002-of-00002.safetensors: w", "model-00001-of-00002.safetensors")
}

func TestIndexMustAgreeWithTheHeaders(t *testing.T) {
	const name = "model-00001-of-00001.safetensors"
	shard := safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	for index, mention := range map[string]string{
		`{"weight_map":{"w":"` + name + `","v":"` + name + `"}}`:  "v: is listed in",
		`{"weight_map":{"w":"model-00002-of-00002.safetensors"}}`: "which is not there",
		`{"weight_map":{"w":"../` + name + `"}}`:                  "which is not there",
		`{"weight_map":{"w":1}}`:                                  "index.json",
		`{"weight_map":`:                                          "index.json",
	} {
		_, err := Open(modelDir(t, map[string][]byte{name: shard, indexName: []byte(index)}))
		requireCorrupt(t, err, indexName, mention)
	}
	a, err := Open(modelDir(t, map[string][]byte{
		name: shard, indexName: []byte(`{"metadata":{"total_size":4},"weight_map":{"w":"` + name + `"}}`),
	}))
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

// A tensor that was taken out of a header leaves a hole before the next one, which is not the one at fault.
func TestADeletedTensorIsNamedWhereTheIndexListsIt(t *testing.T) {
	const name = "model-00001-of-00001.safetensors"
	shard := safetensorsFile(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"c":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8)
	_, err := Open(modelDir(t, map[string][]byte{name: shard, indexName: []byte(`{"weight_map":{"a":"` + name + `","b":"` + name + `","c":"` + name + `"}}`)}))
	requireCorrupt(t, err, indexName+": b", "is listed in "+name+" but that file does not hold it")
	_, err = Open(modelDir(t, map[string][]byte{name: shard}))
	requireCorrupt(t, err, name+": header", "bytes 2..4, between a and c, are of no tensor: one is missing there")
}

func TestReadAtStaysInsideTheTensor(t *testing.T) {
	header := `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`
	a, err := Open(modelDir(t, map[string][]byte{"model.safetensors": safetensorsFile(header, 8)}))
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	b, ok := a.Tensor("b")
	require.True(t, ok)

	p := make([]byte, 4)
	n, err := a.ReadAt(b, p, 0)
	require.NoError(t, err)
	require.Equal(t, []byte{4, 5, 6, 7}, p[:n])

	first, _ := a.Tensor("a")
	long := make([]byte, 100)
	n, err = a.ReadAt(first, long, 1)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []byte{1, 2, 3}, long[:n])

	n, err = a.ReadAt(b, p, 4)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, n)
	for _, off := range []int64{-1, 5, 1 << 62} {
		_, err = a.ReadAt(b, p, off)
		require.Error(t, err)
	}
	forged := b
	forged.Offset = 0
	_, err = a.ReadAt(forged, p, 0)
	require.ErrorContains(t, err, "not of the artifact")
}

func TestFileTruncatedAfterOpenIsNamedWithItsTensor(t *testing.T) {
	dir := modelDir(t, map[string][]byte{
		"model.safetensors": safetensorsFile(`{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, 8),
	})
	a, err := Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	w, _ := a.Tensor("w")
	require.NoError(t, os.Truncate(filepath.Join(dir, "model.safetensors"), w.Offset+3))
	_, err = a.ReadAt(w, make([]byte, 8), 0)
	requireCorrupt(t, err, "model.safetensors: w", "truncated after it was opened")
}

// Bytes must come from the file whose header was checked, even when its name is given to another file meanwhile.
func TestReplacedFileDoesNotReachAnOpenArtifact(t *testing.T) {
	dir := modelDir(t, map[string][]byte{
		"model.safetensors": safetensorsFile(`{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2),
	})
	a, err := Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	other := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(other, bytes.Repeat([]byte{9}, 500), 0o600))
	require.NoError(t, os.Rename(other, filepath.Join(dir, "model.safetensors")))
	w, _ := a.Tensor("w")
	p := make([]byte, 2)
	_, err = a.ReadAt(w, p, 0)
	require.NoError(t, err)
	require.Equal(t, []byte{0, 1}, p)
}

func TestWrittenFileReadsBackEqual(t *testing.T) {
	dir := modelDir(t, nil)
	path := filepath.Join(dir, "model.safetensors")
	in := []NewTensor{
		{"small", U8, []int64{3}, []byte{1, 2, 3}},
		{"b", F32, []int64{1, 2}, []byte{0, 1, 2, 3, 4, 5, 6, 7}},
		{"a", F32, []int64{1}, []byte{9, 9, 9, 9}},
		{"none", F16, []int64{0}, nil},
	}
	require.NoError(t, WriteSafetensors(path, in, map[string]string{"format": "mlx"}))
	a, err := Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	require.Equal(t, map[string]string{"format": "mlx"}, a.Metadata())
	require.Len(t, a.Tensors(), len(in))
	first, _ := a.Tensor("a")
	second, _ := a.Tensor("b")
	require.Zero(t, first.Offset%8, "the payload begins aligned")
	require.Equal(t, first.Offset+4, second.Offset, "wide types first, then by name")
	for _, want := range in {
		got, ok := a.Tensor(want.Name)
		require.True(t, ok)
		require.Equal(t, want.DType, got.DType)
		require.Equal(t, want.Shape, got.Shape)
		p := make([]byte, got.Bytes)
		_, err := a.ReadAt(got, p, 0)
		require.NoError(t, err)
		require.Equal(t, append([]byte{}, want.Data...), p)
	}
}

func TestWriterLeavesNothingBehindWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	for name, tensors := range map[string][]NewTensor{
		"wrong bytes":   {{"a", F32, []int64{2}, make([]byte, 4)}},
		"twice":         {{"a", U8, []int64{1}, []byte{1}}, {"a", U8, []int64{1}, []byte{1}}},
		"reserved name": {{"__metadata__", U8, []int64{1}, []byte{1}}},
		"unknown dtype": {{"a", "Q4_0", []int64{32}, make([]byte, 18)}},
		"negative":      {{"a", U8, []int64{-1}, nil}},
	} {
		require.Error(t, WriteSafetensors(path, tensors, nil), name)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
	require.Error(t, WriteSafetensors(filepath.Join(dir, "no", "such.safetensors"), nil, nil))
}

func FuzzSafetensorsHeader(f *testing.F) {
	f.Add(safetensorsFile(`{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`, 8))
	f.Add(safetensorsFile(`{"w":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[],"data_offsets":[2,3]}}`, 3))
	f.Add(safetensorsFile(`{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, _, err := readST(data)
		if err != nil {
			var known *contract.Error
			if !errors.As(err, &known) || known.Kind != contract.ArtifactCorrupt {
				t.Fatalf("not ArtifactCorrupt: %v", err)
			}
			return
		}
		total := int64(0)
		for _, x := range tensors {
			if x.Bytes < 0 || x.Offset < 8 || x.Offset+x.Bytes > int64(len(data)) {
				t.Fatalf("range outside the file: %+v", x)
			}
			total += x.Bytes
		}
		if total > int64(len(data)) {
			t.Fatalf("ranges overlap: %d bytes of a file of %d", total, len(data))
		}
	})
}
