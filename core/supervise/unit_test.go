//go:build linux || darwin

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestOnlyTheAllowListReachesThePlugin(t *testing.T) {
	got := contract.Environment([]string{
		"PATH=/bin", "HOME=/h", "LC_ALL=C", "CUDA_VISIBLE_DEVICES=1", "HF_TOKEN=secret", "LD_PRELOAD=/x.so",
		"HTTPS_PROXY=p", "PATHX=no", "CLADE_RUNTIME=/other",
	})
	require.Equal(t, []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "CUDA_VISIBLE_DEVICES=1"}, got)
}

func TestLinesAreCutAtTheirLimitAndAtAnyChunkBorder(t *testing.T) {
	long := strings.Repeat("z", maxLine)
	input := "a\n\nb\r\n" + long + "\n" + long + "tail\nend"
	want := []string{"a", "", "b\r", long, long + "+", "end"}
	for _, chunk := range []int{1, 7, maxLine, len(input)} {
		var got []string
		w := &lineWriter{sink: func(l []byte, cut bool) {
			s := string(l)
			if cut {
				s += "+"
			}
			got = append(got, s)
		}}
		for rest := input; rest != ""; {
			n := min(chunk, len(rest))
			_, err := w.Write([]byte(rest[:n]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		w.flush()
		require.Equal(t, want, got, "chunk %d", chunk)
	}
}

func TestTheFirstCauseIsKept(t *testing.T) {
	for _, c := range []struct {
		lines []string
		cause string
	}{
		{[]string{"loading", "panic: first", "goroutine 1 [running]:", "panic: second"}, "panic: first"},
		{[]string{"fatal error: unexpected signal", "[signal SIGSEGV]", "/x/errgroup.go:78 +0x90"}, "fatal error: unexpected signal"},
		{[]string{"MLX error: bad shape at ops.cpp:1", "more"}, "MLX error: bad shape at ops.cpp:1"},
		{[]string{"MLX error: bad shape", "panic: after it"}, "panic: after it"},
		{[]string{"x.cpp:3: f(): Assertion `n > 0' failed."}, "x.cpp:3: f(): Assertion `n > 0' failed."},
		{[]string{"recovered in Generate: bad", "  goroutine 7 [running]:", "  panic({0x1})"}, ""},
	} {
		j := &journal{}
		for _, l := range c.lines {
			j.line([]byte(l), false)
		}
		require.Equal(t, c.cause, j.cause())
	}
}

func TestTheJournalIsBounded(t *testing.T) {
	j := &journal{}
	for range 1000 {
		j.line([]byte(strings.Repeat("x", maxLine)), true)
	}
	total := 0
	for _, l := range j.all() {
		total += len(l)
	}
	require.LessOrEqual(t, total, keepBytes)
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[31mred", "\xff\xfe", "é\u202e", "\x00", "cr\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, r := range printable(raw) {
			require.False(t, r != '\t' && (r < ' ' || r == 0x7f || r == 0x202e), "%q", r)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	for _, s := range []string{
		"1|1|unix|/d/s|grpc|" + strings.Repeat("A", 60), "1|2|unix|/d/s|grpc|", "|||||", "hello", "1|1|tcp|127.0.0.1:1|grpc|",
		"1|1|unix|/d/../e/s|grpc|" + strings.Repeat("A", 60),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		err := checkHandshake("clade-x", line, "/d")
		if err == nil {
			part := strings.Split(strings.TrimSpace(line), "|")
			require.Equal(t, "/d", filepath.Dir(part[3]))
			return
		}
		require.NotContains(t, err.Error(), "\n")
		require.Contains(t, []contract.Kind{contract.PluginCrashed, contract.PluginMismatch}, contract.KindOf(err))
	})
}

func TestABaseDirectoryOfOthersIsRefused(t *testing.T) {
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, private(open, os.Getuid()))
	require.ErrorContains(t, private(open, os.Getuid()+1), "belongs to user")
	require.NoError(t, os.Chmod(open, 0o755))
	require.ErrorContains(t, private(open, os.Getuid()), "open to others")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(open, link))
	require.ErrorContains(t, private(link, os.Getuid()), "not a directory")
}

func TestLeftoversOfKilledHostsAreSwept(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * staleAfter)
	stale, fresh := filepath.Join(base, "stale"), filepath.Join(base, "fresh")
	for _, d := range []string{stale, fresh} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, os.Chtimes(stale, old, old))
	t.Setenv("XDG_RUNTIME_DIR", "")
	held, release, err := privateDir()
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(held, old, old))
	sweep(base)
	sweep(filepath.Dir(held))
	require.NoDirExists(t, stale)
	require.DirExists(t, fresh)
	require.DirExists(t, held)
	release()
	require.NoDirExists(t, held)
}

func TestTheBreakerBacksOffAndOpens(t *testing.T) {
	now := time.Now()
	b := &Breaker{Max: 3, Window: time.Minute, First: time.Second, Most: 3 * time.Second, Now: func() time.Time { return now }}
	next := func() time.Duration {
		d, err := b.Next()
		require.NoError(t, err)
		return d
	}
	require.Zero(t, next())
	b.Crashed(errors.New("one"))
	require.Equal(t, time.Second, next())
	now = now.Add(400 * time.Millisecond)
	require.Equal(t, 600*time.Millisecond, next())
	b.Crashed(errors.New("two"))
	require.Equal(t, 2*time.Second, next())
	b.Worked()
	require.Zero(t, next())
	for _, cause := range []string{"one", "two", "three"} {
		b.Crashed(errors.New(cause))
	}
	_, err := b.Next()
	require.Equal(t, contract.PluginCrashed, contract.KindOf(err))
	require.ErrorContains(t, err, "crashed 3 times within 1m0s, last: three")
	now = now.Add(time.Minute)
	require.Zero(t, next())
}

func TestStatesHaveNames(t *testing.T) {
	require.Equal(t, "absent", Absent.String())
	require.Equal(t, "dead", Dead.String())
}
