	// y[rows, out] = x[rows, in] W^T, with the sums of trellis_linear.cu: those of a row depend on nothing but the matrix's shape.
	constexpr int SPLITS = 4, PARTS = 2;      // simdgroups of a threadgroup: along columns, and along the matrix's rows
	constexpr int STEP = AXIS == 1 ? 4 : 1;   // neighbouring columns of a lane
	constexpr int OUT = AXIS == 1 ? 4 : 8;    // rows of the matrix in a simdgroup
	constexpr int CODES = AXIS == 1 ? 4 : 8;  // values that are taken from a ring together
	constexpr int WORDS = BLOCK * BITS / 32;  // of a ring
	constexpr int WINDOW = ((CODES - 1) * BITS + STATE + 28 + 31) / 32;
	constexpr uint MASK = STATE == 32 ? 0xffffffffu : (1u << (STATE & 31)) - 1u;
	const int rows = x_shape[0], in = x_shape[1];
	const int out = AXIS == 1 ? rings_shape[0] : rings_shape[0] * BLOCK;
	const int lane = thread_index_in_simdgroup, group = simdgroup_index_in_threadgroup;
	const int split = group & (SPLITS - 1), part = group / SPLITS;
	const int row = threadgroup_position_in_grid.y * R;
	const int first = (threadgroup_position_in_grid.x * PARTS + part) * OUT;
	threadgroup float partial[SPLITS][R][PARTS][OUT];

	float sum[R][OUT];
	for (int r = 0; r < R; r++) {
		for (int o = 0; o < OUT; o++) sum[r][o] = 0.0f;
	}
	for (int c = (split * 32 + lane) * STEP; c < in; c += SPLITS * 32 * STEP) {
		float value[R][STEP];
		for (int r = 0; r < R; r++) {
			const device T *from = x + size_t(row + r < rows ? row + r : rows - 1) * in + c;
			for (int i = 0; i < STEP; i++) value[r][i] = float(from[i]);
		}
		uint window[WINDOW];
		if (AXIS == 1) {
			const int block = c / BLOCK, blocks = in / BLOCK;
			const int at = (BLOCK - CODES - (c - block * BLOCK)) * BITS;
			for (int o = 0; o < OUT; o++) {
				const size_t ring = size_t(first + o < out ? first + o : out - 1) * blocks + block;
				const float scale = scales[ring];
				clade_trellis_window<WINDOW, WORDS>(window, rings + ring * WORDS, at);
				for (int i = 0; i < STEP; i++) {
					const float w = clade_trellis_value(clade_trellis_bits(window, (CODES - 1 - i) * BITS) & MASK, scale);
					for (int r = 0; r < R; r++) sum[r][o] = fma(w, value[r][i], sum[r][o]);
				}
			}
		} else {
			const int top = first < out ? first : out - OUT;
			const int block = top / BLOCK;
			const size_t ring = size_t(block) * in + c;
			const float scale = scales[ring];
			clade_trellis_window<WINDOW, WORDS>(window, rings + ring * WORDS, (BLOCK - CODES - (top - block * BLOCK)) * BITS);
			for (int o = 0; o < OUT; o++) {
				const float w = clade_trellis_value(clade_trellis_bits(window, (CODES - 1 - o) * BITS) & MASK, scale);
				for (int r = 0; r < R; r++) sum[r][o] = fma(w, value[r][0], sum[r][o]);
			}
		}
	}
	for (int r = 0; r < R; r++) {
		for (int o = 0; o < OUT; o++) {
			for (int half_ = 16; half_ > 0; half_ >>= 1) sum[r][o] += simd_shuffle_xor(sum[r][o], ushort(half_));
			if (lane == 0) partial[split][r][part][o] = sum[r][o];
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (int i = thread_position_in_threadgroup.x; i < R * PARTS * OUT; i += SPLITS * PARTS * 32) {
		const int r = i / (PARTS * OUT), o = i - r * (PARTS * OUT);
		const int at = threadgroup_position_in_grid.x * PARTS * OUT + o;
		float total = partial[0][r][o / OUT][o & (OUT - 1)];
		for (int s = 1; s < SPLITS; s++) total += partial[s][r][o / OUT][o & (OUT - 1)];
		if (row + r < rows && at < out) y[size_t(row + r) * out + at] = T(total);
	}
