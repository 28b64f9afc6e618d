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

// LoadedBytes is what the parameters take once they are loaded for target.
func (s *Set) LoadedBytes(target Target) (int64, error) {
	var n int64
	for _, src := range s.sources {
		if !target.packs(src) {
			n += src.elements() * int64(src.loadsAs(target.DType).Size())
			continue
		}
		size, err := src.packedBytes(target)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", src.Name, err)
		}
		n += size
	}
	return n, nil
}

func (src Source) packedBytes(target Target) (int64, error) {
	how := src.codec.packing(target.DType)
	if how.affine == nil {
		return target.Kernels.DenseBytes(src.Shape[0], src.Shape[1], how.dtype)
	}
	return target.Kernels.AffineBytes(src.Shape[0], src.Shape[1], *how.affine)
}

func (src Source) newPacked(target Target) (*mlx.Packed, error) {
	how := src.codec.packing(target.DType)
	if how.affine == nil {
		return target.Kernels.NewDense(src.Shape[0], src.Shape[1], how.dtype)
	}
	return target.Kernels.NewAffine(src.Shape[0], src.Shape[1], *how.affine)
}

// StagingBytes is what loading holds beside the parameters: a piece as the file has it, and as the kernels take it.
func (s *Set) StagingBytes() int64 {
	var most int64
	for _, src := range s.sources {
		var n int64
		for _, t := range src.reads {
			n += t.Bytes
		}
		most = max(most, n)
	}
	return 2 * min(most, pieceBytes)
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
