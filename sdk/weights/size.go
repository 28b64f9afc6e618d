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
		rows, width := src.geometry()
		for _, size := range src.codec.rowBytes(width) {
			n += int64(rows) * int64(size)
		}
		if src.global != nil {
			n += src.global.Bytes
		}
	}
	return n
}

// LoadedBytes is what the parameters take once they are loaded for target. A tensor that its packing does not hold takes more,
// at most twice as much; no trained model is known to have one.
func (s *Set) LoadedBytes(target Target) (int64, error) {
	var n int64
	for _, src := range s.sources {
		if target.codes(src) {
			n += src.codedBytes()
			continue
		}
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
	how := src.codec.packings(target.DType)[0]
	rows, width := src.Param.geometry()
	switch {
	case how.trellis != nil:
		return target.Kernels.TrellisBytes(rows, width, *how.trellis)
	case how.affine == nil:
		return target.Kernels.DenseBytes(rows, width, how.dtype)
	}
	return target.Kernels.AffineBytes(rows, width, *how.affine)
}

// reserve allocates a matrix in the kernels' memory.
func (p packing) reserve(k *mlx.Kernels, rows, width int) (*mlx.Packed, error) {
	switch {
	case p.trellis != nil:
		return k.NewTrellis(rows, width, *p.trellis)
	case p.affine == nil:
		return k.NewDense(rows, width, p.dtype)
	}
	return k.NewAffine(rows, width, *p.affine)
}

// StagingBytes is what loading for target holds beside the parameters: a piece as the file has it, the next one, and the first
// as the kernels take it.
func (s *Set) StagingBytes(target Target) int64 {
	var most int64
	for _, src := range s.sources {
		rows, width := src.geometry()
		row, staged := 0, 0
		for _, n := range src.codec.rowBytes(width) {
			row += n
		}
		if how := src.codec.packings(target.DType)[0]; target.packs(src) && !src.verbatim(how) {
			for _, n := range how.rowBytes(width) {
				staged += n
			}
		}
		count := src.pieceRows(rows, row)
		most = max(most, int64(count)*int64(row+staged)+int64(min(count, rows-count)*row)+src.extraBytes())
	}
	return most
}

// Elements counts the parameters' values.
func (s *Set) Elements() int64 {
	var n int64
	for _, src := range s.sources {
		n += src.elements()
	}
	return n
}

// Widest is the most columns of a matrix.
func (s *Set) Widest() int {
	most := 0
	for _, src := range s.sources {
		if len(src.Shape) == 2 { // those of experts are never rounded
			most = max(most, src.Shape[1])
		}
	}
	return most
}

// Quantized names the quantized formats of the set and how many tensors have each ("210 Q4_1"); empty when all are floats.
func (s *Set) Quantized() string {
	return s.counted(func(c codec) string {
		if !c.quantized() {
			return ""
		}
		return c.String()
	})
}

// Dequantized is Quantized of the tensors that become arrays of floats when loaded for target.
func (s *Set) Dequantized(target Target) string {
	counts := map[string]int{}
	for _, src := range s.sources {
		if src.codec.quantized() && !target.packs(src) && !target.codes(src) {
			counts[src.codec.String()]++
		}
	}
	return listed(counts)
}

// Rounding says how many matrices multiply activations rounded to 8 bits when loaded for a target with Int8, and which do not
// ("1 BF16", "3 affine 4-bit in groups of 32 of experts"); empty when all do.
func (s *Set) Rounding(target Target) (rounded int, exact string) {
	counts := map[string]int{}
	for _, src := range s.sources {
		switch {
		case !target.packs(src):
		case src.Experts:
			counts[src.codec.String()+" of experts"]++
		case src.codec.packings(target.DType)[0].affine == nil:
			counts[src.codec.String()]++
		default:
			rounded++
		}
	}
	return rounded, listed(counts)
}

// Held says which formats the kernels hold in another form than the file's ("30 IQ4_NL as 8-bit codes"); empty when they hold all as
// they are stored.
func (s *Set) Held() string {
	return s.counted(func(c codec) string {
		if c.held() == "" {
			return ""
		}
		return c.String() + " as " + c.held()
	})
}

// counted lists what name calls codecs, with how many sources have each; "" is left out.
func (s *Set) counted(name func(codec) string) string {
	counts := map[string]int{}
	for _, src := range s.sources {
		if n := name(src.codec); n != "" {
			counts[n]++
		}
	}
	return listed(counts)
}

func listed(counts map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(list, ", ")
}
