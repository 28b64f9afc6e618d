package echo

import "math"

// mix is splitmix64's finalizer over a and b.
func mix(a, b uint64) uint64 {
	z := a ^ b*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit is in the open interval (0, 1).
func unit(h uint64) float64 { return (float64(h>>12) + 0.5) * 0x1p-52 }

// next is the state behind a token at a position.
func (m *model) next(state uint64, position int, id int32) uint64 {
	word := math.Float32bits(m.weights[(int(id)*7919+position)%len(m.weights)])
	return mix(mix(state, uint64(uint32(id))+1), uint64(word))
}

// logits fills row with values of deviation near 2 that the state decides.
func (m *model) logits(state uint64, row []float64) {
	for id := range row {
		h := mix(state, uint64(id)*2+1)
		// Two uniforms' sum, centred: enough of a bell.
		row[id] = (unit(h) + unit(mix(h, 3)) - 1) * 5
	}
}

// noise is Gumbel noise, a pure function of its four inputs.
func noise(seed uint64, choice uint32, position int, id int) float64 {
	h := mix(mix(mix(seed, uint64(choice)+1), uint64(position)+1), uint64(id)+1)
	return -math.Log(-math.Log(unit(h)))
}
