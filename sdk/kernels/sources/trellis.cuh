// What a state of the 1MAD code stands for, and words of a ring (docs/trellis.md). No percent signs: mlx-c hands MLX's messages, which may
// quote this text, to printf.
#ifndef CLADE_TRELLIS
#define CLADE_TRELLIS

// value has the bits of (sum - 510) / 147.800537109375 * scale. The quotient is a product with the reciprocal in two parts, exact for every
// sum of four bytes; 0x4b000000 + sum are the bits of 2^23 + sum.
__device__ __forceinline__ float clade_trellis_value(unsigned int state, float scale) {
	unsigned int x = state * 34038481u + 76625530u;
	float y = __fsub_rn(__uint_as_float(__dp4a(x, 0x01010101u, 0x4b000000u)), 8389118.0f);
	float quotient = __fmaf_rn(y, __uint_as_float(0x3bddb447u), __fmul_rn(y, __uint_as_float(0xaf7486beu)));
	return __fmul_rn(quotient, scale);
}

// window takes n words of a ring of `words` from bit `at` on, around its end, and shifts that bit to the lowest of into[0].
template <int n, int words>
__device__ __forceinline__ void clade_trellis_window(unsigned int (&into)[n], const unsigned int *ring, int at) {
	int low = at >> 5, by = at & 31;
#pragma unroll
	for (int j = 0; j < n; j++) {
		int i = low + j;
		if (words == 1) i = 0;
		else if (words >= n) i -= i >= words ? words : 0;
		else i -= i / words * words;
		into[j] = ring[i];
	}
#pragma unroll
	for (int j = 0; j + 1 < n; j++) into[j] = __funnelshift_r(into[j], into[j + 1], by);
	into[n - 1] >>= by;
}

// state is the lowest bits of a window from a bit on.
template <int n>
__device__ __forceinline__ unsigned int clade_trellis_bits(const unsigned int (&window)[n], int at) {
	int j = at >> 5;
	return __funnelshift_r(window[j], j + 1 < n ? window[j + 1] : 0u, at & 31);
}

#endif
