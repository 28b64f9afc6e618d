package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake answers the checks with the right ids, but for the first of them, wrong in number.
type fake struct{ asked, wrong int }

func (f *fake) prefill(context.Context, []int32) (time.Duration, error) { return time.Second, nil }

func (f *fake) decode(context.Context, []int32, int) (time.Duration, []int32, error) {
	next := checks[f.asked].next
	if f.asked++; f.asked <= f.wrong {
		next++
	}
	return time.Second, []int32{next, 0}, nil
}

func (f *fake) describe() string { return "fake" }

func (f *fake) close() {}

func TestEngineThatComputesSomethingElseIsRefused(t *testing.T) {
	require.NoError(t, sound(t.Context(), &fake{}, 0))
	require.NoError(t, sound(t.Context(), &fake{wrong: 1}, 1), "a near tie may flip where activations are rounded")
	require.ErrorContains(t, sound(t.Context(), &fake{wrong: 1}, 0), "computes something else")
	require.ErrorContains(t, sound(t.Context(), &fake{wrong: 2}, 1), "5 ids are followed by 7043, right is 7042")
}

func TestPeerThatDoesNotStartOrDiesIsNamed(t *testing.T) {
	script := func(body string) string {
		path := filepath.Join(t.TempDir(), "peer.sh")
		require.NoError(t, os.WriteFile(path, []byte(body), 0o600))
		return path
	}
	_, err := openPeer(t.Context(), "sh", script("exit 3"), "model", 2)
	require.ErrorContains(t, err, "it did not start: it ended without an answer")
	p, err := openPeer(t.Context(), "sh", script(`echo '{"ready": true, "version": "v", "info": "i"}'; read line`), "model", 2)
	require.NoError(t, err)
	require.Equal(t, "v: i", p.describe())
	_, err = p.prefill(t.Context(), []int32{1})
	require.ErrorContains(t, err, "ended without an answer")
	p.close()
}
