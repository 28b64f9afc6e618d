package prefix

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func disk(t *testing.T, quota int64) *Disk {
	t.Helper()
	d, err := OpenDisk(filepath.Join(t.TempDir(), "prefix"), quota)
	require.NoError(t, err)
	return d
}

// keysOf are the keys of a text's runs, cut at multiples of Run.
func keysOf(id Identity, tokens []int32) []Key { return id.Keys(tokens, Ends(len(tokens), nil)) }

// whole is the bytes of a file.
func whole(k Key, run Stored, body string) []byte {
	return append(seal(k, run, []byte(body)), body...)
}

func TestARunComesBackAsItWasWritten(t *testing.T) {
	d := disk(t, 1<<20)
	keys := keysOf(Identity{"model", "graph"}, count(600))
	require.Len(t, keys, 3)
	run := Stored{From: 256, End: 512, Label: "model f32"}
	require.NoError(t, d.Put(keys[1], run, []byte("keys and values")))
	again, err := OpenDisk(d.dir, 1<<20)
	require.NoError(t, err, "a restart")
	got, body, ok := again.Get(keys[1])
	require.True(t, ok)
	require.Equal(t, "keys and values", string(body))
	require.Equal(t, run, got)
	_, _, ok = again.Get(keys[0])
	require.False(t, ok)
	held, err := ListDisk(d.dir)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Equal(t, []any{"model f32", 1, 256}, []any{held[0].Label, held[0].Runs, held[0].Tokens})
	freed, err := again.Clear()
	require.NoError(t, err)
	require.Equal(t, held[0].Bytes, freed)
	require.False(t, d.Has(keys[1]))
}

func TestKeysDependOnEverythingBefore(t *testing.T) {
	tokens := count(600)
	changed := slices.Clone(tokens)
	changed[3] = 99
	a, b := keysOf(Identity{"m"}, tokens), keysOf(Identity{"m"}, changed)
	for i := range a {
		require.NotEqual(t, a[i], b[i])
	}
	require.NotEqual(t, keysOf(Identity{"ab", "c"}, tokens), keysOf(Identity{"a", "bc"}, tokens), "fields do not run into each other")
	require.Equal(t, a[:2], keysOf(Identity{"m"}, tokens[:512]))
	require.NotEqual(t, a[2], keysOf(Identity{"m"}, tokens[:590])[2])
	require.Equal(t, a[1:2], Identity{"m"}.Keys(tokens, []int{512}), "nor on where else the text is cut")
	require.Equal(t, Identity{"m"}.Keys(tokens, []int{300, 512, 590})[2], keysOf(Identity{"m"}, tokens[:590])[2])
	require.Equal(t, []int{100, 256, 300, 512, 600}, Ends(600, []int{300, 100, 256, 0, 600, 700}))
}

// put keeps a text's runs, as many as said, and returns keys and ends.
func put(t *testing.T, d *Disk, tokens []int32, borders []int, only func(end int) bool) ([]Key, []int) {
	t.Helper()
	ends := Ends(len(tokens), borders)
	keys := Identity{"m"}.Keys(tokens, ends)
	from := 0
	for i, end := range ends {
		if !d.Has(keys[i]) && only(end) {
			require.NoError(t, d.Put(keys[i], Stored{From: from, End: end}, []byte{1}))
		}
		from = end
	}
	return keys, ends
}

func TestAChainIsTheLongestBeginningThatIsThereWhole(t *testing.T) {
	d := disk(t, 1<<20)
	all := func(int) bool { return true }
	first, id := count(700), Identity{"m"}
	keys, ends := put(t, d, first, []int{300}, all)
	require.Equal(t, []int{256, 300, 512, 700}, ends)
	require.Equal(t, keys, d.Chain(id, first))

	// A text that parts from it behind the border, one that parts before it, and one that goes on.
	require.Equal(t, keys[:2], d.Chain(id, append(slices.Clone(first[:310]), 9, 9, 9)))
	require.Equal(t, keys[:1], d.Chain(id, append(slices.Clone(first[:299]), 9, 9, 9)))
	require.Equal(t, keys, d.Chain(id, append(slices.Clone(first), 9, 9, 9)), "nobody has to know where it ended")
	require.Nil(t, d.Chain(Identity{"n"}, first))
	require.Nil(t, d.Chain(id, first[:200]))

	require.NoError(t, os.Remove(d.path(keys[1])))
	require.Equal(t, keys[:1], d.Chain(id, first), "nothing is used behind what is missing")
	require.NoError(t, os.Remove(d.path(keys[0])))
	require.Nil(t, d.Chain(id, first))
}

func TestFlippedBytesOnDiskAreDetected(t *testing.T) {
	keys := keysOf(Identity{"m"}, count(10))
	run := Stored{End: 10, Label: "m"}
	sealed := whole(keys[0], run, "keys and values")
	for i := range sealed {
		d := disk(t, 1<<20)
		require.NoError(t, d.Put(keys[0], run, []byte("keys and values")))
		data := slices.Clone(sealed)
		data[i] ^= 1
		require.NoError(t, os.WriteFile(d.path(keys[0]), data, 0o600))
		_, _, ok := d.Get(keys[0])
		require.False(t, ok, "byte %d", i)
		require.EqualValues(t, 1, d.Damaged())
		require.False(t, d.Has(keys[0]), "it is gone")
	}
	for n := range sealed {
		_, _, ok := unseal(keys[0], sealed[:n])
		require.False(t, ok, "cut at %d", n)
	}
}

func TestARenamedRunIsNotBelieved(t *testing.T) {
	d := disk(t, 1<<20)
	keys := keysOf(Identity{"m"}, count(600))
	require.NoError(t, d.Put(keys[0], Stored{End: 256}, []byte("of the first")))
	require.NoError(t, os.Rename(d.path(keys[0]), d.path(keys[1])))
	_, _, ok := d.Get(keys[1])
	require.False(t, ok)
}

func TestTheQuotaHoldsAndTheRunUsedLongestAgoGoes(t *testing.T) {
	one := int64(len(whole(Key{}, Stored{}, string(make([]byte, 1000)))))
	d := disk(t, 3*one)
	keys := keysOf(Identity{"m"}, count(5*Run))
	past := time.Now().Add(-time.Hour)
	for i, k := range keys[:3] {
		require.NoError(t, d.Put(k, Stored{}, make([]byte, 1000)))
		at := past.Add(time.Duration(i) * time.Minute)
		require.NoError(t, os.Chtimes(d.path(k), at, at))
	}
	_, _, ok := d.Get(keys[0])
	require.True(t, ok)
	require.NoError(t, d.Put(keys[3], Stored{}, make([]byte, 1000)))
	require.Equal(t, []bool{true, false, true, true}, []bool{d.Has(keys[0]), d.Has(keys[1]), d.Has(keys[2]), d.Has(keys[3])})
	require.NoError(t, d.Put(keys[4], Stored{}, make([]byte, 10_000)))
	require.False(t, d.Has(keys[4]), "larger than everything")
	_, err := OpenDisk(d.dir, 2*one)
	require.NoError(t, err, "a smaller quota counts from the start")
	require.Equal(t, []bool{true, false, false, true}, []bool{d.Has(keys[0]), d.Has(keys[1]), d.Has(keys[2]), d.Has(keys[3])})
}

// A text's end is of no use without its beginning: the end goes first.
func TestOfOneTextTheDeepestRunGoesFirst(t *testing.T) {
	one := int64(len(whole(Key{}, Stored{}, string(make([]byte, 1000)))))
	d := disk(t, 3*one)
	keys := keysOf(Identity{"m"}, count(3*Run))
	for i, k := range keys {
		require.NoError(t, d.Put(k, Stored{From: i * Run, End: (i + 1) * Run}, make([]byte, 1000)))
	}
	require.NoError(t, d.Put(Key{End: 1}, Stored{}, make([]byte, 1000)))
	require.Equal(t, []bool{true, true, false}, []bool{d.Has(keys[0]), d.Has(keys[1]), d.Has(keys[2])})
}

func TestAFolderThatCannotBeUsedIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prefix")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err := OpenDisk(dir, 1)
	require.ErrorContains(t, err, "chmod 700")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = OpenDisk(filepath.Join(file, "prefix"), 1)
	require.ErrorContains(t, err, file)
	_, err = OpenDisk("/proc/self/prefix", 1)
	require.Error(t, err, "nothing can be made there, whoever asks")
	require.NoDirExists(t, "/proc/self/prefix")
}

func TestManyWritersLeaveWholeRuns(t *testing.T) {
	d := disk(t, 1<<20)
	keys := keysOf(Identity{"m"}, count(20*Run))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			mine := &Disk{dir: d.dir, quota: d.quota}
			for i, k := range keys {
				require.NoError(t, mine.Put(k, Stored{}, []byte{byte(i)}))
				_, body, ok := mine.Get(k)
				require.True(t, ok)
				require.Equal(t, []byte{byte(i)}, body)
			}
		})
	}
	wg.Wait()
	require.Zero(t, d.Damaged())
}

// writerFolder makes the test binary a writer that is killed.
const writerFolder = "CLADE_TEST_PREFIX_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerFolder); dir != "" {
		d, err := OpenDisk(dir, quotaOfWriters)
		if err != nil {
			panic(err)
		}
		body := make([]byte, 1<<20)
		for i := 0; ; i++ {
			k := Named(strconv.Itoa(os.Getpid()) + " " + strconv.Itoa(i))
			if err := d.Put(k, Stored{From: i}, body); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

const quotaOfWriters = 8 << 20

// Several processes write and are killed in mid write: what is left is whole or not there, and never more than the quota.
func TestKilledWritersLeaveNoBrokenRunAndKeepTheQuota(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prefix")
	for round := range 6 {
		var writers []*exec.Cmd
		for range 3 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), writerFolder+"="+dir)
			require.NoError(t, cmd.Start())
			writers = append(writers, cmd)
		}
		if round == 0 {
			require.Eventually(t, func() bool { files, _ := list(dir, func(string) {}); return len(files) > 4 }, 10*time.Second, time.Millisecond)
		}
		time.Sleep(time.Duration(15+7*round) * time.Millisecond)
		for _, cmd := range writers {
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // killed
		}
		var held int64
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(t, err)
			held += info.Size()
		}
		require.LessOrEqual(t, held, int64(quotaOfWriters), "unfinished files included")
	}
	d, err := OpenDisk(dir, quotaOfWriters)
	require.NoError(t, err)
	files, err := list(dir, func(path string) { require.Fail(t, "left behind: "+path) })
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		k, ok := parseName(filepath.Base(f.path))
		require.True(t, ok)
		_, _, ok = d.Get(k)
		require.True(t, ok, f.path)
	}
}

func FuzzAFileIsWholeOrRefused(f *testing.F) {
	f.Add(whole(Key{}, Stored{From: 1, End: 2, Label: "m"}, "body"))
	f.Add([]byte(diskMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, body, ok := unseal(Key{}, data)
		if ok {
			require.Equal(t, data, whole(Key{}, run, string(body)))
		}
	})
}
