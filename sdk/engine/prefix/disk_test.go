package prefix

import (
	"os"
	"path/filepath"
	"slices"
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

func TestARunComesBackAsItWasWritten(t *testing.T) {
	d := disk(t, 1<<20)
	keys := Identity{"model", "graph"}.Keys(count(600))
	require.Len(t, keys, 3)
	require.NoError(t, d.Put(keys[1], []byte("keys and values")))
	again, err := OpenDisk(d.dir, 1<<20)
	require.NoError(t, err, "a restart")
	body, ok := again.Get(keys[1])
	require.True(t, ok)
	require.Equal(t, "keys and values", string(body))
	_, ok = again.Get(keys[0])
	require.False(t, ok)
	freed, err := again.Clear()
	require.NoError(t, err)
	require.Positive(t, freed)
	require.False(t, d.Has(keys[1]))
}

func TestKeysDependOnEverythingBefore(t *testing.T) {
	tokens := count(600)
	changed := slices.Clone(tokens)
	changed[3] = 99
	a, b := Identity{"m"}.Keys(tokens), Identity{"m"}.Keys(changed)
	for i := range a {
		require.NotEqual(t, a[i], b[i])
	}
	require.NotEqual(t, Identity{"ab", "c"}.Keys(tokens), Identity{"a", "bc"}.Keys(tokens), "fields do not run into each other")
	require.Equal(t, a[:2], Identity{"m"}.Keys(tokens[:512]))
	require.NotEqual(t, a[2], Identity{"m"}.Keys(tokens[:590])[2])
}

func TestFlippedBytesOnDiskAreDetected(t *testing.T) {
	keys := Identity{"m"}.Keys(count(10))
	whole := seal(keys[0], []byte("keys and values"))
	for i := range whole {
		d := disk(t, 1<<20)
		require.NoError(t, d.Put(keys[0], []byte("keys and values")))
		data := slices.Clone(whole)
		data[i] ^= 1
		require.NoError(t, os.WriteFile(d.path(keys[0]), data, 0o600))
		_, ok := d.Get(keys[0])
		require.False(t, ok, "byte %d", i)
		require.EqualValues(t, 1, d.Damaged())
		require.False(t, d.Has(keys[0]), "it is gone")
	}
	for n := range whole {
		_, ok := unseal(keys[0], whole[:n])
		require.False(t, ok, "cut at %d", n)
	}
}

func TestARenamedRunIsNotBelieved(t *testing.T) {
	d := disk(t, 1<<20)
	keys := Identity{"m"}.Keys(count(600))
	require.NoError(t, d.Put(keys[0], []byte("of the first")))
	require.NoError(t, os.Rename(d.path(keys[0]), d.path(keys[1])))
	_, ok := d.Get(keys[1])
	require.False(t, ok)
}

func TestTheQuotaHoldsAndTheRunUsedLongestAgoGoes(t *testing.T) {
	one := int64(len(seal(Key{}, make([]byte, 1000))))
	d := disk(t, 3*one)
	keys := Identity{"m"}.Keys(count(5 * Run))
	past := time.Now().Add(-time.Hour)
	for i, k := range keys[:3] {
		require.NoError(t, d.Put(k, make([]byte, 1000)))
		at := past.Add(time.Duration(i) * time.Minute)
		require.NoError(t, os.Chtimes(d.path(k), at, at))
	}
	_, ok := d.Get(keys[0])
	require.True(t, ok)
	require.NoError(t, d.Put(keys[3], make([]byte, 1000)))
	require.Equal(t, []bool{true, false, true, true}, []bool{d.Has(keys[0]), d.Has(keys[1]), d.Has(keys[2]), d.Has(keys[3])})
	require.NoError(t, d.Put(keys[4], make([]byte, 10_000)))
	require.False(t, d.Has(keys[4]), "larger than everything")
}

func TestAFolderThatOthersMayReadIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prefix")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err := OpenDisk(dir, 1)
	require.ErrorContains(t, err, "chmod 700")
}

func TestManyWritersLeaveWholeRuns(t *testing.T) {
	d := disk(t, 1<<20)
	keys := Identity{"m"}.Keys(count(20 * Run))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, k := range keys {
				require.NoError(t, d.Put(k, []byte{byte(i)}))
				body, ok := d.Get(k)
				require.True(t, ok)
				require.Equal(t, []byte{byte(i)}, body)
			}
		})
	}
	wg.Wait()
	require.Zero(t, d.Damaged())
}
