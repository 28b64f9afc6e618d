	// y[n, in]: the rows of the matrix that ids[n] names.
	constexpr int WORDS = BLOCK * BITS / 32;
	constexpr int WINDOW = (STATE + 31 + 31) / 32;
	constexpr unsigned int MASK = STATE == 32 ? 0xffffffffu : (1u << (STATE & 31)) - 1u;
	const int in = AXIS == 1 ? scales_shape[1] * BLOCK : scales_shape[1];
	const int c = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.y;
	if (c < in) {
		const int id = ids[n];
		const int line = AXIS == 1 ? id : id / BLOCK, column = AXIS == 1 ? c / BLOCK : c;
		const int t = AXIS == 1 ? c - column * BLOCK : id - line * BLOCK;
		const size_t ring = size_t(line) * scales_shape[1] + column;
		unsigned int window[WINDOW];
		clade_trellis_window<WINDOW, WORDS>(window, rings + ring * WORDS, (BLOCK - 1 - t) * BITS);
		y[size_t(n) * in + c] = T(clade_trellis_value(clade_trellis_bits(window, 0) & MASK, scales[ring]));
	}
