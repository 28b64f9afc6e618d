package serve

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// shelf is a registry over fakes that are made anew at each opening.
type shelf struct {
	*registry
	mu     sync.Mutex
	opened map[string][]*fakeEngine
	gate   func(name string) error // runs in each opening
}

func newShelf(t *testing.T, keepAlive time.Duration, names ...string) *shelf {
	t.Helper()
	s := &shelf{opened: map[string][]*fakeEngine{}}
	var models []Served
	for _, name := range names {
		models = append(models, Served{Name: name, Key: "key of " + name, Open: func(context.Context) (Engine, error) {
			if s.gate != nil {
				if err := s.gate(name); err != nil {
					return nil, err
				}
			}
			e := newFake("x")
			e.bytes = 100
			s.mu.Lock()
			defer s.mu.Unlock()
			s.opened[name] = append(s.opened[name], e)
			return e, nil
		}})
	}
	var err error
	s.registry, err = newRegistry(models, keepAlive, 8, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { s.registry.close(context.Background()) })
	return s
}

// use leases a model and says how to end that.
func (s *shelf) use(t *testing.T, name string) func() {
	t.Helper()
	_, release, err := s.lease(t.Context(), s.find(name))
	require.NoError(t, err)
	return release
}

// last is the newest engine of a model, and how many there were.
func (s *shelf) last(name string) (*fakeEngine, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.opened[name]
	if len(list) == 0 {
		return nil, 0
	}
	return list[len(list)-1], len(list)
}

func (s *shelf) isOpen(name string) bool { return s.find(name).current() != nil }

func TestEvictionTakesTheLeastRecentlyUsedIdleModelsAndNoMore(t *testing.T) {
	s := newShelf(t, -1, "a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c", "d"} {
		s.use(t, name)()
		time.Sleep(2 * time.Millisecond)
	}
	s.use(t, "a")() // now b is the oldest
	busy := s.use(t, "c")
	defer busy()
	require.EqualValues(t, 300, s.Idle(), "c is in use")
	s.Evict(t.Context(), 150)
	require.False(t, s.isOpen("b"), "the least recently used")
	require.True(t, s.isOpen("c"), "in use")
	require.False(t, s.isOpen("d"), "next in age after the one in use")
	require.True(t, s.isOpen("a"), "enough was freed")
	s.Evict(t.Context(), 1000)
	require.False(t, s.isOpen("a"))
	require.True(t, s.isOpen("c"), "never one that is in use")
}

// users.md 14: a swap never evicts the model that was just loaded for a queued request.
func TestAModelLoadedForAQueuedRequestIsNotEvictedBeforeItsUse(t *testing.T) {
	s := newShelf(t, 0, "a")
	stop := make(chan struct{})
	var evictions sync.WaitGroup
	evictions.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.Evict(context.Background(), 1)
			}
		}
	})
	for range 200 {
		e, release, err := s.lease(t.Context(), s.find("a"))
		require.NoError(t, err)
		require.False(t, e.(*fakeEngine).closed.Load(), "it was taken away between its opening and its use")
		release()
	}
	close(stop)
	evictions.Wait()
}

func TestAnOpeningModelIsNotEvicted(t *testing.T) {
	s := newShelf(t, -1, "a")
	started, goOn := make(chan struct{}), make(chan struct{})
	s.gate = func(string) error { close(started); <-goOn; return nil }
	got := make(chan func(), 1)
	go func() {
		_, release, err := s.lease(context.Background(), s.find("a"))
		if err == nil {
			got <- release
		}
	}()
	<-started
	s.Evict(t.Context(), 1) // returns at once and closes nothing
	close(goOn)
	(<-got)()
	require.True(t, s.isOpen("a"))
}

func TestACrashWhileEvictingFreesTheModelAllTheSame(t *testing.T) {
	s := newShelf(t, -1, "a")
	s.use(t, "a")()
	e, _ := s.last("a")
	e.closeErr = contract.Errorf(contract.PluginCrashed, "universal", "died while it stopped")
	e.die(contract.Errorf(contract.PluginCrashed, "universal", "cannot start"))
	s.Evict(t.Context(), 1)
	require.False(t, s.isOpen("a"))
	s.use(t, "a")()
	fresh, n := s.last("a")
	require.Equal(t, 2, n)
	require.False(t, fresh.closed.Load())
	require.Never(t, func() bool { return e.restarts.Load() > 1 }, 50*time.Millisecond, 10*time.Millisecond, "the watcher of an evicted engine goes on")
}

func TestIdleModelsAreUnloadedAfterKeepAliveAndOpenAgain(t *testing.T) {
	s := newShelf(t, 60*time.Millisecond, "a")
	release := s.use(t, "a")
	time.Sleep(150 * time.Millisecond)
	require.True(t, s.isOpen("a"), "in use longer than keep-alive")
	release()
	require.Eventually(t, func() bool { return !s.isOpen("a") }, soon, 5*time.Millisecond)
	state, err := s.find("a").health(t.Context())
	require.NoError(t, err, "an unloaded model is no fault")
	require.Equal(t, "absent", state)
	s.use(t, "a")()
	_, n := s.last("a")
	require.Equal(t, 2, n)
}

func TestStopOfABusyModelDrainsAndTheNextRequestOpensItAgain(t *testing.T) {
	s := newShelf(t, -1, "a")
	release := s.use(t, "a")
	first, _ := s.last("a")
	stopped := make(chan bool, 1)
	go func() { stopped <- s.stop(s.find("a"), time.Minute) }()
	require.Eventually(t, func() bool { return s.find("a").card().State == "draining" }, soon, time.Millisecond)
	next := make(chan func(), 1)
	go func() {
		_, r, err := s.lease(context.Background(), s.find("a"))
		if err == nil {
			next <- r
		}
	}()
	time.Sleep(20 * time.Millisecond)
	require.False(t, first.closed.Load(), "its request still runs")
	release()
	require.True(t, <-stopped)
	require.True(t, first.closed.Load())
	(<-next)()
	second, n := s.last("a")
	require.Equal(t, 2, n)
	require.NotSame(t, first, second)
	require.False(t, newShelf(t, -1, "z").stop(&served{tenure: &tenure{}}, 0), "what is not open cannot be stopped")
}

func TestStopEndsAfterItsPatience(t *testing.T) {
	s := newShelf(t, -1, "a")
	release := s.use(t, "a")
	require.True(t, s.stop(s.find("a"), 20*time.Millisecond))
	e, _ := s.last("a")
	require.True(t, e.closed.Load())
	release()
}

func TestCoresAreDividedOverOpenModels(t *testing.T) {
	s := newShelf(t, -1, "a", "b", "c")
	threads := func(name string) int32 { e, _ := s.last(name); return e.threads.Load() }
	s.use(t, "a")()
	require.EqualValues(t, 8, threads("a"))
	s.use(t, "b")()
	require.EqualValues(t, []int32{4, 4}, []int32{threads("a"), threads("b")})
	s.use(t, "c")()
	require.EqualValues(t, []int32{2, 2, 2}, []int32{threads("a"), threads("b"), threads("c")})
	require.True(t, s.stop(s.find("b"), time.Second))
	require.EqualValues(t, []int32{4, 4}, []int32{threads("a"), threads("c")})
}

func TestAtTheStartModelsAreNotClosedForEachOther(t *testing.T) {
	s := newShelf(t, -1, "a", "b")
	s.gate = func(name string) error {
		if name == "b" && s.Idle() == 0 {
			return contract.Errorf(contract.MemoryAdmission, name, "needs more than there is")
		}
		return nil
	}
	require.NoError(t, s.openAll(t.Context()))
	require.True(t, s.isOpen("a"))
	require.False(t, s.isOpen("b"))
	_, err := s.find("b").health(t.Context())
	require.NoError(t, err)
	s.use(t, "b")() // a is idle now, so there is room
	require.True(t, s.isOpen("b"))
}

func TestLeasesEvictionsAndStopsDoNotDisturbEachOther(t *testing.T) {
	s := newShelf(t, time.Millisecond, "a", "b", "c")
	var requests, broken atomic.Int32
	var all sync.WaitGroup
	end := time.Now().Add(400 * time.Millisecond)
	for i := range 6 {
		all.Go(func() {
			for time.Now().Before(end) {
				e, release, err := s.lease(context.Background(), s.find(fmt.Sprintf("%c", 'a'+i%3)))
				if err != nil {
					broken.Add(1)
					continue
				}
				if e.(*fakeEngine).closed.Load() {
					broken.Add(1)
				}
				requests.Add(1)
				release()
			}
		})
	}
	all.Go(func() {
		for time.Now().Before(end) {
			s.Evict(context.Background(), 150)
			s.stop(s.find("b"), time.Second)
		}
	})
	all.Wait()
	require.Zero(t, broken.Load(), "of %d requests", requests.Load())
}
