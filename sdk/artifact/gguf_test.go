package artifact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestGGUFReadsEveryValueType(t *testing.T) {
	nested := garray{kind: ggufArray, n: 2, raw: append(
		garray{kind: ggufU8, n: 2, raw: []byte{1, 2}}.bytes(), gstrings("x").bytes()...)}
	for _, version := range []uint32{2, 3} {
		meta, tensors, err := ggufFile{version: version, entries: [][]byte{
			gkv("u8", uint8(200)), gkv("i8", int8(-3)), gkv("u16", uint16(60000)), gkv("i16", int16(-300)),
			gkv("u32", uint32(4e9)), gkv("i32", int32(-5)), gkv("u64", uint64(math.MaxUint64)), gkv("i64", int64(-7)),
			gkv("f32", float32(1e-5)), gkv("f64", 2.5), gkv("bool", true), gkv("str", "hé"),
			gkv("strings", gstrings("a", "", "c")), gkv("nested", nested),
			gkv("ints", garray{kind: ggufI16, n: 2, raw: []byte{255, 255, 2, 0}}),
			gkv("big", garray{kind: ggufU64, n: 1, raw: bytes.Repeat([]byte{255}, 8)}),
			gkv("floats", garray{kind: ggufF32, n: 1, raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.1))}),
			gkv("bools", garray{kind: ggufBool, n: 2, raw: []byte{0, 1}}),
		}}.read()
		require.NoError(t, err)
		require.Empty(t, tensors)
		require.Equal(t, int(version), meta.Version)
		for key, want := range map[string]any{
			"u8": int64(200), "i8": int64(-3), "u16": int64(60000), "i16": int64(-300), "u32": int64(4e9),
			"i32": int64(-5), "u64": uint64(math.MaxUint64), "i64": int64(-7), "f64": 2.5, "bool": true, "str": "hé",
			"f32":     1e-5, // spelled as the config.json it came from, not 9.999999747378752e-06
			"strings": []string{"a", "", "c"}, "ints": []int64{-1, 2}, "big": []uint64{math.MaxUint64},
			"floats": []float64{0.1}, "bools": []bool{false, true}, "nested": []any{[]int64{1, 2}, []string{"x"}},
		} {
			got, ok := meta.Get(key)
			require.True(t, ok, key)
			require.Equal(t, want, got, key)
		}
		require.Equal(t, "u8", meta.Keys()[0])
		_, ok := meta.Ints("big")
		require.False(t, ok)
		_, ok = meta.String("u8")
		require.False(t, ok)
	}
}

func TestGGUFTensorsAreRowMajorAndInsideTheFile(t *testing.T) {
	g := ggufFile{
		entries: [][]byte{gkv("general.alignment", uint32(64))}, pad: 64, payload: 64 + 4,
		tensors: [][]byte{gtensor("q", 2, 0, 32, 2), gtensor("f", 0, 64)},
	}
	_, tensors, err := g.read()
	require.NoError(t, err)
	start := int64(len(g.bytes()) - g.payload)
	require.Equal(t, []Tensor{
		{"q", "Q4_0", []int64{2, 32}, 36, "m.gguf", start},
		{"f", F32, []int64{}, 4, "m.gguf", start + 64},
	}, tensors)
}

func TestGGUFRefusesHostileHeaders(t *testing.T) {
	long := func(kind uint32, n uint64) []byte { return gkv("a", garray{kind: kind, n: n}) }
	deep := garray{kind: ggufArray, n: 1}
	for range 10 {
		deep = garray{kind: ggufArray, n: 1, raw: deep.bytes()}
	}
	u32 := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	tensor := func(entries ...[]byte) ggufFile { return ggufFile{tensors: entries, payload: 64} }
	for name, c := range map[string]struct {
		file    ggufFile
		mention string
	}{
		"version 1":                 {ggufFile{version: 1}, "version 1"},
		"version 4":                 {ggufFile{version: 4}, "version 4"},
		"big-endian":                {ggufFile{version: 3 << 24}, "big-endian"},
		"tensors beyond the file":   {ggufFile{lie: map[string]uint64{"tensors": 1 << 19}}, "524288 tensors"},
		"2^64-1 tensors":            {ggufFile{lie: map[string]uint64{"tensors": math.MaxUint64}}, "tensors"},
		"entries beyond the file":   {ggufFile{lie: map[string]uint64{"entries": 60000}}, "60000 metadata entries"},
		"2^63 entries":              {ggufFile{lie: map[string]uint64{"entries": 1 << 63}}, "metadata entries"},
		"key twice":                 {ggufFile{entries: [][]byte{gkv("a", true), gkv("a", true)}}, "m.gguf: a"},
		"empty key":                 {ggufFile{entries: [][]byte{gkv("", true)}}, "empty"},
		"long key":                  {ggufFile{entries: [][]byte{binary.LittleEndian.AppendUint64(nil, 1<<40)}, pad: 1, payload: 64}, "a string of 1099511627776 bytes"},
		"string beyond the file":    {ggufFile{entries: [][]byte{append(append(gstr("a"), u32(ggufString)...), 255, 255, 0, 0, 0, 0, 0, 0)}}, "m.gguf: a"},
		"string over its cap":       {ggufFile{entries: [][]byte{append(append(gstr("a"), u32(ggufString)...), 0, 0, 0, 0, 0, 0, 0, 1)}}, "the limit is"},
		"unknown value type":        {ggufFile{entries: [][]byte{append(append(gstr("a"), u32(13)...), 0, 0, 0, 0)}}, "metadata type 13"},
		"boolean of 2":              {ggufFile{entries: [][]byte{append(append(gstr("a"), u32(ggufBool)...), 2)}}, "byte 2"},
		"array of unknown type":     {ggufFile{entries: [][]byte{long(99, 0)}}, "unknown type 99"},
		"array beyond the file":     {ggufFile{entries: [][]byte{long(ggufU64, 1000)}}, "array elements"},
		"array of 2^61 u64":         {ggufFile{entries: [][]byte{long(ggufU64, 1<<61)}}, "array elements"},
		"array of 2^64-1 strings":   {ggufFile{entries: [][]byte{long(ggufString, math.MaxUint64)}}, "array elements"},
		"arrays nested too deep":    {ggufFile{entries: [][]byte{gkv("a", deep)}}, "nested deeper"},
		"alignment of zero":         {ggufFile{entries: [][]byte{gkv("general.alignment", uint32(0))}}, "general.alignment"},
		"alignment of 3":            {ggufFile{entries: [][]byte{gkv("general.alignment", uint32(3))}}, "power of two"},
		"alignment that is text":    {ggufFile{entries: [][]byte{gkv("general.alignment", "32")}}, "power of two"},
		"removed ggml type":         {tensor(gtensor("w", 4, 0, 32)), "ggml type 4 is unknown"},
		"ggml type beyond the list": {tensor(gtensor("w", 1000, 0, 32)), "m.gguf: w: ggml type 1000"},
		"five dimensions":           {tensor(gtensor("w", 0, 0, 1, 1, 1, 1, 1)), "5 dimensions"},
		"2^32-1 dimensions":         {tensor(append(gstr("w"), 255, 255, 255, 255)), "dimensions"},
		"dimension of 2^63":         {tensor(gtensor("w", 0, 0, 1<<63)), "dimension 0"},
		"product wraps":             {tensor(gtensor("w", 0, 0, 1<<32, 1<<32)), "63 bits"},
		"bytes wrap":                {tensor(gtensor("w", 0, 0, 1<<62)), "63 bits"},
		"rows not whole blocks":     {tensor(gtensor("w", 2, 0, 33)), "blocks of 32"},
		"misaligned offset":         {tensor(gtensor("w", 0, 8, 1)), "multiple of the alignment"},
		"offset beyond the file":    {tensor(gtensor("w", 0, 1<<40, 1)), "beyond the file's data of 64"},
		"end beyond the file":       {tensor(gtensor("w", 0, 32, 9)), "beyond the file's data"},
		"overlap":                   {tensor(gtensor("w", 0, 0, 16), gtensor("v", 0, 32, 8)), "m.gguf: v"},
		"name twice":                {tensor(gtensor("w", 0, 0, 8), gtensor("w", 0, 32, 8)), "appears twice"},
		"truncated payload":         {ggufFile{tensors: [][]byte{gtensor("w", 0, 0, 16)}, payload: 64, truncate: 1}, "m.gguf: w"},
		"truncated table":           {ggufFile{tensors: [][]byte{gtensor("w", 0, 0, 16)}, truncate: 20}, "m.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := c.file.read()
			requireCorrupt(t, err, "m.gguf", c.mention)
		})
	}
}

func TestGGUFLyingCountsAllocateNothing(t *testing.T) {
	entries := [][]byte{gkv("a", garray{kind: ggufU8, n: 1 << 24})}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ggufFile{entries: entries}.read()
	runtime.ReadMemStats(&after)
	requireCorrupt(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestGGUFMetadataBecomesTheConfigOfTheSameModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	g := ggufFile{entries: [][]byte{
		gkv("general.architecture", "llama"),
		gkv("llama.block_count", uint32(2)), gkv("llama.embedding_length", uint32(64)),
		gkv("llama.feed_forward_length", garray{kind: ggufU32, n: 2, raw: []byte{128, 0, 0, 0, 128, 0, 0, 0}}),
		gkv("llama.attention.head_count", uint32(4)), gkv("llama.attention.head_count_kv", uint32(2)),
		gkv("llama.attention.key_length", uint32(16)), gkv("llama.attention.layer_norm_rms_epsilon", float32(1e-6)),
		gkv("llama.rope.freq_base", float32(500000)), gkv("llama.rope.dimension_count", uint32(16)),
		gkv("llama.rope.scaling.type", "yarn"), gkv("llama.rope.scaling.factor", float32(4)),
		gkv("llama.rope.scaling.original_context_length", uint32(64)), gkv("llama.context_length", uint32(256)),
		gkv("tokenizer.ggml.tokens", gstrings("a", "b", "c")),
		gkv("tokenizer.ggml.bos_token_id", uint32(1)), gkv("tokenizer.ggml.eos_token_id", uint32(2)),
		gkv("tokenizer.ggml.eot_token_id", uint32(0)),
	}, tensors: [][]byte{gtensor("token_embd.weight", 0, 0, 1), gtensor("blk.0.attn_q.bias", 0, 32, 1)}, payload: 64}
	require.NoError(t, os.WriteFile(path, g.bytes(), 0o600))
	a, err := Open(path)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	text, err := a.Config().MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, `{"attention_bias":true,"bos_token_id":1,"eos_token_id":[2,0],"head_dim":16,"hidden_size":64,`+
		`"intermediate_size":128,"max_position_embeddings":256,"mlp_bias":false,"model_type":"llama","num_attention_heads":4,`+
		`"num_hidden_layers":2,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_scaling":{"factor":4.0,`+
		`"original_max_position_embeddings":64,"rope_type":"yarn"},"rope_theta":500000.0,"rotary_dim":16,`+
		`"tie_word_embeddings":true,"vocab_size":3}`, string(text))
	require.Equal(t, "m.gguf", a.Config().Name())
	ids, ok, err := a.GenerationConfig().Ints("eos_token_id")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []int64{2, 0}, ids)
	_, err = a.File("tokenizer.json")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

func TestSplitGGUFIsRefusedByItsPartCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m-00001-of-00003.gguf")
	require.NoError(t, os.WriteFile(path, ggufFile{entries: [][]byte{gkv("split.count", uint16(3))}}.bytes(), 0o600))
	_, err := Open(path)
	require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
	require.ErrorContains(t, err, "one of 3 parts")
}

func TestEveryNamedTypeHasItsBlock(t *testing.T) {
	for n, row := range ggmlTypes {
		if row.name == "" {
			require.Contains(t, []int{4, 5, 31, 32, 33, 36, 37, 38}, n, "only removed numbers are nameless")
			continue
		}
		elems, size, ok := row.name.Block()
		require.True(t, ok, row.name)
		require.Equal(t, row.block, block{elems, size}, row.name)
	}
	_, _, ok := DType("Q99").Block()
	require.False(t, ok)
}

func FuzzGGUFHeader(f *testing.F) {
	f.Add(ggufFile{
		entries: [][]byte{gkv("general.architecture", "llama"), gkv("t", gstrings("a", "b"))},
		tensors: [][]byte{gtensor("w", 2, 0, 32, 2)}, payload: 64,
	}.bytes())
	f.Add(ggufFile{version: 2, entries: [][]byte{gkv("a", garray{kind: ggufArray, n: 1, raw: garray{kind: ggufU8, n: 1, raw: []byte{1}}.bytes()})}}.bytes())
	f.Add(ggufFile{tensors: [][]byte{gtensor("w", 0, 1<<62, 1<<62)}}.bytes())
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, tensors, err := readGGUF("m.gguf", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			var known *contract.Error
			if !errors.As(err, &known) || known.Kind != contract.ArtifactCorrupt {
				t.Fatalf("not ArtifactCorrupt: %v", err)
			}
			return
		}
		for _, x := range tensors {
			if x.Bytes < 0 || x.Offset < 24 || x.Offset+x.Bytes > int64(len(data)) {
				t.Fatalf("range outside the file: %+v", x)
			}
		}
	})
}
