package weights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/mlx"
)

// StoredBytes is what loading reads from the file.
func (s *Set) StoredBytes() int64 {
	var n int64
	for _, src := range s.sources {
		for _, t := range src.reads {
			n += t.Bytes
		}
	}
	return n
}

// LoadedBytes is what the arrays take when the graph computes in dtype.
func (s *Set) LoadedBytes(dtype mlx.DType) int64 {
	var n int64
	for _, src := range s.sources {
		n += src.elements() * int64(src.loadsAs(dtype).Size())
	}
	return n
}

// Elements counts the parameters' values.
func (s *Set) Elements() int64 {
	var n int64
	for _, src := range s.sources {
		n += src.elements()
	}
	return n
}

// Quantized names the quantized formats of the set and how many tensors have each ("210 Q4_1"); empty when all are floats.
func (s *Set) Quantized() string {
	counts := map[string]int{}
	for _, src := range s.sources {
		if src.codec.quantized() {
			counts[src.codec.String()]++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}
