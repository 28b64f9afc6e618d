// What a state of the 1MAD code stands for, and words of a ring (docs/trellis.md); trellis.cuh has the same for CUDA. No percent signs: mlx-c
// hands MLX's messages, which may quote this text, to printf.

// value has the bits of (sum - 510) / 147.800537109375 * scale. The quotient is a product with the reciprocal in two parts, exact for every
// sum of four bytes.
inline float clade_trellis_value(uint state, float scale) {
	uint x = state * 34038481u + 76625530u;
	uint pairs = (x & 0x00ff00ffu) + ((x >> 8) & 0x00ff00ffu);
	float y = float(int((pairs & 0xffffu) + (pairs >> 16)) - 510);
	float quotient = fma(y, as_type<float>(0x3bddb447u), y * as_type<float>(0xaf7486beu));
	return quotient * scale;
}

// shifted is 32 bits of two words from bit `by` of the first on, 0 to 31.
inline uint clade_trellis_shifted(uint low, uint high, int by) { return (low >> by) | ((high << 1) << (31 - by)); }

// window takes n words of a ring of `words` from bit `at` on, around its end, and shifts that bit to the lowest of into[0].
template <int n, int words>
inline void clade_trellis_window(thread uint (&into)[n], const device uint *ring, int at) {
	int low = at >> 5, by = at & 31;
	for (int j = 0; j < n; j++) {
		int i = low + j;
		i -= i / words * words;
		into[j] = ring[i];
	}
	for (int j = 0; j + 1 < n; j++) into[j] = clade_trellis_shifted(into[j], into[j + 1], by);
	into[n - 1] >>= by;
}

// bits are 32 of a window from a bit on.
template <int n>
inline uint clade_trellis_bits(const thread uint (&window)[n], int at) {
	int j = at >> 5;
	return clade_trellis_shifted(window[j], j + 1 < n ? window[j + 1] : 0u, at & 31);
}
