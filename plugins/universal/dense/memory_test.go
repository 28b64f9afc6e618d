package dense

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// A conversation's next turn computes only what is new, and gives what it gives cold.
func TestTheNextTurnComputesOnlyNewTokens(t *testing.T) {
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
	cold := open(t, tinyPaths[testModel], mlx.Float32, 512)
	warm := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: 1 << 30})
	turn := tiny.Prompt(300, 256)
	first := generate(t, warm, turn, start)
	require.Equal(t, generate(t, cold, turn, start).ids, first.ids)
	require.Zero(t, first.finish.Usage.CachedTokens)

	turn = append(append(turn, first.ids...), tiny.Prompt(30, 256)...)
	second := generate(t, warm, turn, start)
	require.Equal(t, generate(t, cold, turn, start).ids, second.ids)
	require.GreaterOrEqual(t, int(second.finish.Usage.CachedTokens), 318, "all but the last token of the answer")

	// Nothing behind a changed token is used.
	changed := slices.Clone(turn)
	changed[100]++
	third := generate(t, warm, changed, start)
	require.Equal(t, generate(t, cold, changed, start).ids, third.ids)
	require.EqualValues(t, 100, third.finish.Usage.CachedTokens)

	// The very same prompt again: one token is computed.
	again := generate(t, warm, turn, start)
	require.Equal(t, second.ids, again.ids)
	require.EqualValues(t, len(turn)-1, again.finish.Usage.CachedTokens)

	apart := &cladev1.GenerateStart{MaxTokens: start.MaxTokens, Sampling: start.Sampling, PrefixCache: ptr(false)}
	require.Zero(t, generate(t, warm, turn, apart).finish.Usage.CachedTokens)
	stats := warm.Stats()
	require.Positive(t, stats.PrefixCachedTokens)
	require.Greater(t, stats.PrefixQueriedTokens, stats.PrefixCachedTokens)
}

func TestWhatACancelledRequestComputedIsKept(t *testing.T) {
	e := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: 1 << 30})
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(100)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
	prompt := tiny.Prompt(300, 256)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := e.Generate(ctx, &plugin.GenerateJob{Start: start, IDs: prompt}, func(r *cladev1.GenerateResponse) error {
		if r.GetStep() != nil {
			cancel()
		}
		return nil
	})
	require.Error(t, err)
	start.MaxTokens = ptr(uint32(4))
	require.EqualValues(t, 299, generate(t, e, prompt, start).finish.Usage.CachedTokens)
}

func TestTheBudgetOfKeptBeginningsHolds(t *testing.T) {
	const budget = 200_000
	before := mlx.LiveHandles()
	e := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: budget})
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(4))}
	generate(t, e, []int32{1, 2, 3}, start)
	base := e.Stats().Memory.ActiveBytes
	for i := range int32(12) {
		prompt := tiny.Prompt(200, 256)
		prompt[0] = i
		generate(t, e, prompt, start)
		require.LessOrEqual(t, e.Stats().Memory.ActiveBytes, base+budget)
	}
	require.NoError(t, e.Close())
	require.Equal(t, before, mlx.LiveHandles())
}

// onDisk is a configuration whose prefix cache outlives the process in dir.
func onDisk(t *testing.T, dir string, id prefix.Identity) engine.Config {
	t.Helper()
	files, err := prefix.OpenDisk(dir, 1<<30)
	require.NoError(t, err)
	return engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: 1 << 30, Rows: 4, Queue: 16, DType: mlx.Float32, Disk: &engine.Disk{
		Disk: files, Label: "tiny", Identity: func(context.Context) (prefix.Identity, error) {
			time.Sleep(50 * time.Millisecond) // as long as a tokenizer takes to be read: the first request waits for it
			return id, nil
		},
	}}
}

// until waits for what the engine does beside requests.
func until(t *testing.T, e *engine.Engine, fact func(s *cladev1.StatsResponse) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return fact(e.Stats()) }, waitLimit, waitStep)
}

// What was on disk when the engine closed is used by the next one, to the message border where another chat parts.
func TestARestartKeepsWhatIsOnDisk(t *testing.T) {
	for _, name := range []string{testModel, "minicpm3-a"} {
		t.Run(name, func(t *testing.T) { restartsFromDisk(t, tinyPaths[name]) })
	}
}

func restartsFromDisk(t *testing.T, path string) {
	t.Helper()
	dir, id := filepath.Join(t.TempDir(), "prefix"), prefix.Identity{"tiny"}
	cold := open(t, path, mlx.Float32, 512)
	start := func(borders ...uint32) *cladev1.GenerateStart {
		return &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}, RestorePoints: borders}
	}
	system, chat := tiny.Prompt(300, everyVocab), tiny.Prompt(440, everyVocab)
	first := openConfig(t, path, onDisk(t, dir, id))
	want := generate(t, first, chat, start(300))
	require.Zero(t, want.finish.Usage.CachedTokens)
	require.NoError(t, first.Close(), "what waits is written")

	second := openConfig(t, path, onDisk(t, dir, id))
	other := append(slices.Clone(system), tiny.Prompt(90, 191)...)
	got := generate(t, second, other, start(300))
	require.EqualValues(t, 300, got.finish.Usage.CachedTokens, "a different chat with the same beginning")
	require.Equal(t, generate(t, cold, other, start()).ids, got.ids)
	again := append(append(slices.Clone(chat), want.ids...), 7, 7, 7)
	got = generate(t, second, again, start(300, 440))
	require.EqualValues(t, 459, got.finish.Usage.CachedTokens, "the whole last turn")
	require.Equal(t, generate(t, cold, again, start()).ids, got.ids)
	stats := second.Stats()
	require.EqualValues(t, 459, stats.PrefixDiskReadTokens, "what memory has is not read again")
	require.Zero(t, stats.FailedEvaluations)
	require.Zero(t, stats.PrefixDiskFailures)
	require.NoError(t, second.Close())

	third := openConfig(t, path, onDisk(t, dir, prefix.Identity{"tiny", "another dtype"}))
	require.Zero(t, generate(t, third, again, start(300)).finish.Usage.CachedTokens, "what another model kept is none of this one's")
}

// Writing goes on beside requests; two engines share a folder.
func TestEnginesShareWhatIsOnDiskWhileTheyRun(t *testing.T) {
	dir, id := filepath.Join(t.TempDir(), "prefix"), prefix.Identity{"tiny"}
	one := openConfig(t, tinyPaths[testModel], onDisk(t, dir, id))
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(4))}
	prompt := tiny.Prompt(400, 256)
	want := generate(t, one, prompt, start)
	until(t, one, func(s *cladev1.StatsResponse) bool { return s.PrefixDiskWrittenTokens >= 400 })
	two := openConfig(t, tinyPaths[testModel], onDisk(t, dir, id))
	got := generate(t, two, prompt, start)
	require.EqualValues(t, 256, got.finish.Usage.CachedTokens, "the multiple of a run below: no border was named")
	require.Equal(t, want.ids, got.ids)
}

// A run that is damaged, cut or replaced on disk is not used, and is gone then; what is before it is.
func TestADamagedRunOnDiskChangesNoToken(t *testing.T) {
	dir, id := filepath.Join(t.TempDir(), "prefix"), prefix.Identity{"tiny"}
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), RestorePoints: []uint32{100, 300}}
	prompt := tiny.Prompt(440, 256)
	first := openConfig(t, tinyPaths[testModel], onDisk(t, dir, id))
	want := generate(t, first, prompt, start)
	require.NoError(t, first.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*.kv"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	for i, damage := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return nil },
	} {
		data, err := os.ReadFile(files[i])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(files[i], damage(data), 0o600))
		e := openConfig(t, tinyPaths[testModel], onDisk(t, dir, id))
		got := generate(t, e, prompt, start)
		require.Equal(t, want.ids, got.ids)
		require.Less(t, int(got.finish.Usage.CachedTokens), 439)
		require.NoError(t, e.Close(), "writes it again")
	}
	e := openConfig(t, tinyPaths[testModel], onDisk(t, dir, id))
	require.EqualValues(t, 300, generate(t, e, prompt, start).finish.Usage.CachedTokens)
}

// A disk that takes nothing costs no request anything but what it would have kept.
func TestADiskThatCannotBeWrittenIsCounted(t *testing.T) {
	prompt, start := tiny.Prompt(400, 256), &cladev1.GenerateStart{MaxTokens: ptr(uint32(4))}
	want := generate(t, open(t, tinyPaths[testModel], mlx.Float32, 512), prompt, start)
	dir := filepath.Join(t.TempDir(), "prefix")
	e := openConfig(t, tinyPaths[testModel], onDisk(t, dir, prefix.Identity{"tiny"}))
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600)) // no folder any more: whoever asks, nothing can be made there
	require.Equal(t, want.ids, generate(t, e, prompt, start).ids)
	until(t, e, func(s *cladev1.StatsResponse) bool { return s.PrefixDiskFailures > 0 })
	require.Equal(t, want.ids, generate(t, e, prompt, start).ids)
}

// A cache with windows cannot be gone on with from anywhere: it is captured at message borders, near the prompt's end and where the
// answer ended, and what is used of it begins there, in memory and from disk.
func TestACacheThatForgetsIsGoneOnWithFromWhereItWasCaptured(t *testing.T) {
	dir, id := filepath.Join(t.TempDir(), "prefix"), prefix.Identity{"tiny"}
	start := func(borders ...uint32) *cladev1.GenerateStart {
		return &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}, RestorePoints: borders}
	}
	const window = "llama-sliding" // 8 tokens, of which far fewer than the context are kept
	chat := tiny.Prompt(2000, 256)
	cold := openConfig(t, tinyPaths[window], engine.Config{Context: 4096, PrefillChunk: 256})
	config := func() engine.Config {
		c := onDisk(t, dir, id)
		c.Context = 4096
		return c
	}
	other := append(slices.Clone(chat[:700]), tiny.Prompt(900, 251)...)
	wantOther := generate(t, cold, other, start()).ids
	want := generate(t, cold, chat, start())
	next := append(append(slices.Clone(chat), want.ids...), tiny.Prompt(40, 256)...)
	wantNext := generate(t, cold, next, start()).ids

	e := openConfig(t, tinyPaths[window], config())
	require.Equal(t, want.ids, generate(t, e, chat, start(700, 1990)).ids)
	got := generate(t, e, next, start(700, 1990, 2020))
	require.Equal(t, wantNext, got.ids)
	require.EqualValues(t, 2019, got.finish.Usage.CachedTokens, "the whole last turn but for the token that nobody computed yet")
	got = generate(t, e, other, start(700))
	require.Equal(t, wantOther, got.ids)
	require.EqualValues(t, 700, got.finish.Usage.CachedTokens, "the border where both part")
	require.GreaterOrEqual(t, int(generate(t, e, chat, start(700, 1990)).finish.Usage.CachedTokens), 1990, "the same prompt again")
	require.NoError(t, e.Close())

	e = openConfig(t, tinyPaths[window], config())
	got = generate(t, e, other, start(700))
	require.Equal(t, wantOther, got.ids)
	require.Greater(t, int(got.finish.Usage.CachedTokens), 700, "from disk")
	got = generate(t, e, next, start(700, 1990, 2020))
	require.Equal(t, wantNext, got.ids)
	require.Greater(t, int(got.finish.Usage.CachedTokens), 1989)
	require.Zero(t, e.Stats().FailedEvaluations)
}
