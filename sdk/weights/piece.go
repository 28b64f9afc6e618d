package weights

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"unsafe"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
)

// pieceBytes bounds what is read from the file at once, unless one row or head is larger.
const pieceBytes = 8 << 20

// pieceRows is how many rows of so many bytes are read at once: whole heads where rows change places within one.
func (src Source) pieceRows(rows, rowBytes int) int {
	unit := 1
	if src.InterleavedHeads != 0 {
		unit = rows / src.InterleavedHeads
	}
	return min(max(pieceBytes/rowBytes/unit, 1)*unit, rows)
}

// piece is some rows of a source as the file has them.
type piece struct {
	first, count int
	sizes        [parts]int
	bytes        [parts][]byte
}

// row is row r of the piece in each tensor that is read.
func (p piece) row(r int) [parts][]byte {
	var out [parts][]byte
	for i, n := range p.sizes {
		out[i] = p.bytes[i][r*n : (r+1)*n]
	}
	return out
}

// pieces reads a source's rows of width values, some at a time: the next ones while the last are used.
func (l *loader) pieces(src Source, rows, width int, use func(piece) error) error {
	sizes := src.codec.rowBytes(width)
	rowTotal := 0
	for _, n := range sizes {
		rowTotal += n
	}
	most := src.pieceRows(rows, rowTotal)
	var whole [parts][]byte
	if c, ok := src.codec.(awqCodec); ok {
		var err error
		if whole, err = l.repacked(src, c); err != nil {
			return err
		}
	}
	read := func(first, turn int) (piece, error) {
		p := piece{first: first, count: min(most, rows-first), sizes: sizes}
		for i, n := range sizes {
			if n == 0 {
				continue
			}
			l.buffers[turn][i] = grown(l.buffers[turn][i], p.count*sizes[i])
			for done := 0; done < p.count; {
				if whole[i] != nil {
					at, run := src.Part.Row(first+done, rows)
					done += copy(l.buffers[turn][i][done*sizes[i]:p.count*sizes[i]], whole[i][at*sizes[i]:(at+run)*sizes[i]]) / sizes[i]
					continue
				}
				t, at, run := src.place(i, first+done, rows)
				run = min(run, p.count-done)
				if err := l.read(t, l.buffers[turn][i][done*sizes[i]:(done+run)*sizes[i]], at*sizes[i]); err != nil {
					return p, err
				}
				done += run
			}
			p.bytes[i] = l.buffers[turn][i]
		}
		return p, nil
	}
	p, err := read(0, 0)
	for turn := 1; err == nil && p.count > 0; turn ^= 1 {
		var next piece
		var nextErr error
		var wg sync.WaitGroup
		if end := p.first + p.count; end < rows {
			wg.Go(func() { next, nextErr = read(end, turn) })
		}
		err = use(p)
		wg.Wait()
		if err == nil {
			l.progress.Bytes += int64(p.count * rowTotal)
			l.report(l.progress)
			p, err = next, nextErr
		}
	}
	return err
}

// read fills buffer with bytes of t from off.
func (l *loader) read(t artifact.Tensor, buffer []byte, off int) error {
	if err := l.ctx.Err(); err != nil {
		return contract.Errorf(contract.Cancelled, t.Name, "loading was cancelled: %w", err)
	}
	got, err := l.set.artifact.ReadAt(t, buffer, int64(off))
	if got == len(buffer) && (err == nil || errors.Is(err, io.EOF)) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return corrupt(t, "ends after %d of %d bytes", off+got, t.Bytes)
	}
	return err
}

// grown is a buffer of n bytes, the given one if it is large enough.
func grown(buffer []byte, n int) []byte {
	if cap(buffer) < n {
		return make([]byte, n)
	}
	return buffer[:n]
}

// eachRow calls do for every row below count, on all of Go's processors, and returns the first row's error. Each goroutine has a
// scratch; all end before eachRow does.
func eachRow(count int, do func(r int, s *scratch) error) error {
	workers := min(runtime.GOMAXPROCS(0), count)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var s scratch
			for r := w * count / workers; r < (w+1)*count/workers && errs[w] == nil; r++ {
				errs[w] = do(r, &s)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// scratch is one goroutine's decoded row.
type scratch struct{ values []float32 }

// dense decodes one row of width values into its place and reports whether dtype holds them exactly.
func (s *scratch) dense(c codec, dtype mlx.DType, width int, out []byte, src [parts][]byte) bool {
	if f, ok := c.(floatCodec); ok && f.dtype() == dtype {
		copy(out, src[0])
		return true
	}
	if dtype == mlx.Float32 {
		c.row(unsafe.Slice((*float32)(unsafe.Pointer(&out[0])), width), src)
		return true
	}
	if cap(s.values) < width {
		s.values = make([]float32, width)
	}
	values, float, exact := s.values[:width], floatOf(dtype), true
	c.row(values, src)
	for i, v := range values {
		exact = float.Put(out[2*i:], v) && exact
	}
	return exact
}
