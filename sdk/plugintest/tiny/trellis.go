package tiny

import (
	"encoding/binary"
	"maps"
	"math"
	"strings"

	"github.com/clademl/clade/sdk/weights/quant"
)

// Qwen3Trellis is a checkpoint of the qwen3 graph of trellis codes, and one of floats that hold the values which these stand for. No
// oracle reads the first.
func Qwen3Trellis() (coded, decoded Checkpoint) {
	coded = qwenCheckpoints(nil, qwen3Config, []qwenRecipe{{"qwen3-trellis", trellisConfig(), quantizedStore}})[0]
	decoded = qwenCheckpoints(nil, qwen3Config, []qwenRecipe{{"qwen3-trellis-decoded", map[string]any{"tie_word_embeddings": false}, safetensors("F32")}})[0]
	block := coded.Config["quantization"].(map[string]any)
	for i, t := range decoded.Tensors {
		path := strings.TrimSuffix(t.Name, ".weight")
		entry, listed := block[path]
		if own, is := entry.(map[string]any); len(t.Shape) == 2 && (is || !listed) {
			decoded.Tensors[i].Values = decodeTrellis(formatOf(block, own), t)
		}
	}
	return coded, decoded
}

// decodeTrellis is what a matrix becomes by being encoded.
func decodeTrellis(f quant.Trellis, t Tensor) []float32 {
	rings, scales := EncodeTrellis(f, t.Values, t.Shape[1])
	out, lines := make([]float32, len(t.Values)), t.Shape[0]
	if f.Axis == 0 {
		lines /= f.Block
	}
	for i, each := 0, len(out)/lines; i < lines; i++ {
		n := each / f.Block
		f.Row(out[i*each:(i+1)*each], rings[i*n*f.RingBytes():], scales[i*n:(i+1)*n])
	}
	return out
}

// formatOf is an entry's format: what it leaves out is the block's.
func formatOf(block, entry map[string]any) quant.Trellis {
	all := maps.Clone(block)
	maps.Copy(all, entry)
	return quant.Trellis{Bits: all["bits"].(int), Block: all["group_size"].(int), State: all["L"].(int), Axis: all["axis"].(int)}
}

// trellisConfig is a model of trellis codes of 2 to 4 bits along both axes, a matrix of floats among them.
func trellisConfig() map[string]any {
	along := func(bits, axis int) map[string]any {
		return map[string]any{"mode": "trellis", "bits": bits, "axis": axis}
	}
	return map[string]any{"tie_word_embeddings": false, "quantization": map[string]any{
		"mode": "trellis", "bits": 3, "group_size": 32, "L": 8, "code": quant.TrellisCode, "axis": 1,
		"model.layers.0.self_attn.q_proj": along(2, 1), "model.layers.0.self_attn.k_proj": along(2, 0),
		"model.layers.0.mlp.gate_proj": along(4, 0), "model.layers.1.mlp.up_proj": along(3, 0),
		"model.layers.1.mlp.down_proj":    map[string]any{"mode": "trellis", "bits": 4, "group_size": 64, "L": 10, "code": quant.TrellisCode, "axis": 1},
		"model.layers.1.self_attn.v_proj": false,
	}}
}

// trellisPair stores a matrix as rings and scales, by its entry and what that leaves to the block.
func trellisPair(path string, t Tensor, block, entry map[string]any) []stored {
	f := formatOf(block, entry)
	rings, scales := EncodeTrellis(f, t.Values, t.Shape[1])
	lines, width := t.Shape[0], t.Shape[1]
	if f.Axis == 0 {
		lines, width = lines/f.Block, width*f.Block
	}
	return []stored{
		{path + ".weight", "U32", []int{lines, width * f.Bits / 32}, rings},
		{path + ".scales", "F32", []int{lines, width / f.Block}, encode("F32", scales)},
	}
}

// EncodeTrellis encodes a matrix of rows of `in` values.
func EncodeTrellis(f quant.Trellis, values []float32, in int) (rings []byte, scales []float32) {
	e := newTrellisEncoder(f)
	block := make([]float32, f.Block)
	for b := range len(values) / f.Block {
		at, step := b*f.Block, 1
		if f.Axis == 0 {
			at, step = b/in*f.Block*in+b%in, in
		}
		for i := range block {
			block[i] = values[at+i*step]
		}
		scale := quant.TrellisScale(block)
		rings, scales = append(rings, e.encode(block, scale)...), append(scales, scale)
	}
	return rings, scales
}

// trellisEncoder finds, by Viterbi's algorithm, the walk whose values lie nearest to a block's.
type trellisEncoder struct {
	trellis quant.Trellis
	values  []float32 // of each state
	cost    [2][]float32
	from    [][]uint32 // of each step and each group of states with one past: the best state before
}

func newTrellisEncoder(f quant.Trellis) *trellisEncoder {
	e := &trellisEncoder{trellis: f, values: make([]float32, 1<<f.State), from: make([][]uint32, f.Block)}
	for s := range e.values {
		e.values[s] = f.Value(uint32(s))
	}
	for i := range e.cost {
		e.cost[i] = make([]float32, len(e.values))
	}
	for i := range e.from {
		e.from[i] = make([]uint32, len(e.values)>>f.Bits)
	}
	return e
}

// walk is the nearest walk. Without open the states at its ends must fit into one ring: what they share is `shared`.
func (e *trellisEncoder) walk(block []float32, scale float32, open bool, shared uint32) []uint32 {
	bits, pasts := e.trellis.Bits, uint32(len(e.values)>>e.trellis.Bits)
	distance := func(s int, v float32) float32 { d := e.values[s]*scale - v; return d * d }
	now, next := e.cost[0], e.cost[1]
	for s := range now {
		now[s] = float32(math.Inf(1))
		if open || uint32(s)>>bits == shared {
			now[s] = distance(s, block[0])
		}
	}
	for t := 1; t < len(block); t++ {
		for past := range pasts {
			best := past
			for h := past; h < uint32(len(now)); h += pasts { // all states whose newest bits are this past
				if now[h] < now[best] {
					best = h
				}
			}
			e.from[t][past] = best
			for s := int(past) << bits; s < int(past+1)<<bits; s++ {
				next[s] = now[best] + distance(s, block[t])
			}
		}
		now, next = next, now
	}
	last := uint32(0)
	if !open {
		last = shared
	}
	for s := range uint32(len(now)) {
		if (open || s%pasts == shared) && now[s] < now[last] {
			last = s
		}
	}
	out := make([]uint32, len(block))
	for t := len(block) - 1; t >= 0; t-- {
		out[t] = last
		if t > 0 {
			last = e.from[t][last>>bits]
		}
	}
	return out
}

// encode closes the walk: what its ends share is taken from an open walk over the block turned by half, where they are neighbours.
func (e *trellisEncoder) encode(block []float32, scale float32) []byte {
	half := len(block) / 2
	turned := append(append([]float32{}, block[half:]...), block[:half]...)
	states := e.walk(turned, scale, true, 0)
	shared := states[len(block)-half] >> e.trellis.Bits
	ring := make([]byte, e.trellis.RingBytes())
	for t, s := range e.walk(block, scale, false, shared) {
		at := (len(block) - 1 - t) * e.trellis.Bits
		for i := range e.trellis.Bits {
			if s>>i&1 != 0 {
				word := binary.LittleEndian.Uint32(ring[(at+i)/32*4:]) | 1<<((at+i)%32)
				binary.LittleEndian.PutUint32(ring[(at+i)/32*4:], word)
			}
		}
	}
	return ring
}
