package serve

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// adapterLoad counts the requests of one model that chose adapters, by adapter.
type adapterLoad struct {
	mu sync.Mutex
	// waiting have no token yet, running have.
	waiting, running map[string]int
}

func newAdapterLoad() *adapterLoad {
	return &adapterLoad{waiting: map[string]int{}, running: map[string]int{}}
}

// count adds n to every adapter of a choice in one of the maps.
func (l *adapterLoad) count(in map[string]int, choice *string, n int) {
	if choice == nil {
		return
	}
	uses, err := contract.ParseAdapters(*choice)
	if err != nil {
		return // the model refuses it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range uses {
		if in[u.ID] += n; in[u.ID] == 0 {
			delete(in, u.ID)
		}
	}
}

// begin counts a request as waiting; started moves it to those that run, ended takes it out.
func (l *adapterLoad) begin(choice *string) (started, ended func()) {
	in := l.waiting
	l.count(in, choice, 1)
	started = func() {
		l.count(in, choice, -1)
		in = l.running
		l.count(in, choice, 1)
	}
	return started, func() { l.count(in, choice, -1) }
}

// write writes vLLM's gauge of adapters: its value is the time, its labels say which adapters there are requests for. max_lora is how
// many may be in one batch: all that are loaded.
func (l *adapterLoad) write(w io.Writer, model string, adapters int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := func(of map[string]int) string { return strings.Join(slices.Sorted(maps.Keys(of)), ",") }
	line := name("vllm:lora_requests_info", model, "max_lora", strconv.Itoa(adapters),
		"waiting_lora_adapters", list(l.waiting), "running_lora_adapters", list(l.running))
	_, _ = fmt.Fprintf(w, "%s %.3f\n", line, float64(time.Now().UnixMilli())/1000) // a buffer takes all
}
