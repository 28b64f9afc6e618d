package serve

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// updated is a model whose plugin can be updated; both says whether two engines fit.
type updated struct {
	*registry
	version atomic.Int32
	both    bool
	broken  atomic.Bool
	mu      sync.Mutex
	engines []*fakeEngine
	tries   atomic.Int32
}

// versioned is an engine of one version; as core/cli's, it cannot be compared.
type versioned struct {
	*fakeEngine
	version int32
	_       []int
}

func newUpdated(t *testing.T, both bool) *updated {
	t.Helper()
	u := &updated{both: both}
	u.version.Store(1)
	open := func(context.Context) (Engine, error) {
		e := newFake("x")
		u.mu.Lock()
		defer u.mu.Unlock()
		u.engines = append(u.engines, e)
		return versioned{fakeEngine: e, version: u.version.Load()}, nil
	}
	beside := func(ctx context.Context, _ Engine) (Engine, error) {
		u.tries.Add(1)
		switch {
		case u.broken.Load():
			u.version.Store(1) // as core/cli does: not tried again
			return nil, contract.Errorf(contract.PluginCrashed, "p", "cannot start")
		case !u.both:
			return nil, contract.Errorf(contract.MemoryAdmission, "m", "both do not fit")
		}
		return open(ctx)
	}
	var err error
	u.registry, err = newRegistry([]Served{{
		Name: "m", Open: open, Beside: beside, Stale: func(e Engine) bool { return e.(versioned).version != u.version.Load() },
	}}, -1, 4, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { u.registry.close(context.Background()) })
	return u
}

func (u *updated) use(t *testing.T) (int32, func()) {
	t.Helper()
	e, release, err := u.lease(t.Context(), u.find("m"))
	require.NoError(t, err)
	return e.(versioned).version, release
}

// now is the version that a request would get.
func (u *updated) now(t *testing.T) int32 {
	v, release := u.use(t)
	release()
	return v
}

func TestAnUpdatedPluginTakesNewRequestsWhileTheOldOneDrains(t *testing.T) {
	u := newUpdated(t, true)
	_, release := u.use(t)
	u.version.Store(2)
	require.Eventually(t, func() bool { return u.now(t) == 2 }, soon, 20*time.Millisecond)
	require.False(t, u.engines[0].closed.Load(), "a request still runs on it")
	release()
	require.Eventually(t, u.engines[0].closed.Load, soon, time.Millisecond)
	require.False(t, u.engines[1].closed.Load())
}

func TestRequestsQueueWhereBothVersionsDoNotFit(t *testing.T) {
	u := newUpdated(t, false)
	_, release := u.use(t)
	u.version.Store(2)
	require.Eventually(t, func() bool { return u.find("m").card().State == "draining" }, soon, time.Millisecond)
	const many = 200
	got := make(chan int32, many)
	for range many {
		go func() {
			e, release, err := u.lease(context.Background(), u.find("m"))
			if err != nil {
				got <- -1
				return
			}
			release()
			got <- e.(versioned).version
		}()
	}
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, got, "a request did not wait")
	require.False(t, u.engines[0].closed.Load())
	release()
	for range many {
		require.Equal(t, int32(2), <-got)
	}
	require.True(t, u.engines[0].closed.Load())
	require.Len(t, u.engines, 2)
}

func TestTheQueueOfAnUpgradeIsBounded(t *testing.T) {
	u := newUpdated(t, false)
	_, release := u.use(t)
	u.version.Store(2)
	require.Eventually(t, func() bool { return u.find("m").card().State == "draining" }, soon, time.Millisecond)
	var wg sync.WaitGroup
	var busy atomic.Int32
	for range maxWaiting + 10 {
		wg.Go(func() {
			_, end, err := u.lease(context.Background(), u.find("m"))
			if contract.KindOf(err) == contract.Busy {
				busy.Add(1)
				return
			}
			if err == nil {
				end()
			}
		})
	}
	require.Eventually(t, func() bool { return busy.Load() == 10 }, soon, time.Millisecond)
	release()
	wg.Wait()
	require.Equal(t, int32(10), busy.Load())
}

func TestAVersionThatCannotOpenLeavesTheOldOneInPlace(t *testing.T) {
	u := newUpdated(t, true)
	u.now(t)
	u.broken.Store(true)
	u.version.Store(2)
	require.Eventually(t, func() bool { return u.tries.Load() == 1 }, soon, time.Millisecond)
	require.Equal(t, int32(1), u.now(t))
	require.False(t, u.engines[0].closed.Load())
}

func TestAnIdleModelMovesToTheNewVersionToo(t *testing.T) {
	for _, both := range []bool{true, false} {
		u := newUpdated(t, both)
		u.now(t)
		u.version.Store(2)
		require.Eventually(t, func() bool {
			u.mu.Lock()
			defer u.mu.Unlock()
			return len(u.engines) == 2 && u.engines[0].closed.Load()
		}, soon, time.Millisecond)
		require.Equal(t, int32(2), u.now(t))
	}
}
