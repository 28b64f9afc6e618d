package engine

import "math"

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): multipliers and
// Weyl constants of the published generator.
const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
	philoxRounds       = 10
)

// philox is the block function: four counter words and two key words in, four words out.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range philoxRounds {
		p0 := uint64(philoxM0) * uint64(c[0])
		p1 := uint64(philoxM1) * uint64(c[2])
		c = [4]uint32{
			uint32(p1>>32) ^ c[1] ^ k[0], uint32(p1),
			uint32(p0>>32) ^ c[3] ^ k[1], uint32(p0),
		}
		k[0] += philoxW0
		k[1] += philoxW1
	}
	return c
}

// Noise is the Gumbel noise of one request's choice. Its value at a position and token is a pure function of (seed,
// choice, position, token id): the seed is the Philox key, the counter is (token id, position, choice, 0). So a token
// sampled again after a restart, in another batch or with a wider vocabulary is the same token.
type Noise struct {
	Seed   uint64
	Choice uint32
}

// uniform is in the open interval (0, 1): 52 random bits and a half, which float64 holds exactly. With 53 bits the
// largest value would round to 1 and its noise would be +Inf.
func (n Noise) uniform(position uint32, id int32) float64 {
	return n.number([4]uint32{uint32(id), position, n.Choice, 0})
}

// draw is one number in (0, 1) for the position as a whole, apart from every token's: the counter's last word is 1.
func (n Noise) draw(position uint32) float64 {
	return n.number([4]uint32{0, position, n.Choice, 1})
}

func (n Noise) number(counter [4]uint32) float64 {
	w := philox(counter, [2]uint32{uint32(n.Seed), uint32(n.Seed >> 32)})
	bits := (uint64(w[1])<<32 | uint64(w[0])) >> 12
	return (float64(bits) + 0.5) * 0x1p-52
}

// At is -log(-log(u)) of the token that would stand at position, computed in float64.
func (n Noise) At(position uint32, id int32) float32 {
	return float32(-math.Log(-math.Log(n.uniform(position, id))))
}

// Row fills row with the noise of ids 0..len(row)-1 at position.
func (n Noise) Row(position uint32, row []float32) {
	for id := range row {
		row[id] = n.At(position, int32(id))
	}
}
