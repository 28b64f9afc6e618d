	// y[rows, out] = x[rows, in] W^T. The sums of a row depend on nothing but the matrix's shape: lane l of SPLITS warps adds the columns that
	// are its own in ascending order, the lanes are added by halves, then the warps in order.
	constexpr int SPLITS = 4, PARTS = 2;      // warps of a block: along columns, and along the matrix's rows
	constexpr int STEP = AXIS == 1 ? 4 : 1;   // neighbouring columns of a lane
	constexpr int OUT = AXIS == 1 ? 4 : 8;    // rows of the matrix in a warp
	constexpr int CODES = AXIS == 1 ? 4 : 8;  // values that are taken from a ring together
	constexpr int WORDS = BLOCK * BITS / 32;  // of a ring
	constexpr int WINDOW = ((CODES - 1) * BITS + STATE + 28 + 31) / 32;
	constexpr unsigned int MASK = STATE == 32 ? 0xffffffffu : (1u << (STATE & 31)) - 1u;
	const int rows = x_shape[0], in = x_shape[1];
	const int out = AXIS == 1 ? rings_shape[0] : rings_shape[0] * BLOCK;
	const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	const int split = warp & (SPLITS - 1), part = warp / SPLITS;
	const int row = blockIdx.y * R;
	const int first = (blockIdx.x * PARTS + part) * OUT;
	const bool aligned = (reinterpret_cast<size_t>(x) & (4 * sizeof(T) - 1)) == 0;
	__shared__ float partial[SPLITS][R][PARTS][OUT];

	float sum[R][OUT];
#pragma unroll
	for (int r = 0; r < R; r++) {
#pragma unroll
		for (int o = 0; o < OUT; o++) sum[r][o] = 0.0f;
	}
	for (int c = (split * 32 + lane) * STEP; c < in; c += SPLITS * 32 * STEP) {
		float value[R][STEP];
#pragma unroll
		for (int r = 0; r < R; r++) {
			const T *from = x + size_t(row + r < rows ? row + r : rows - 1) * in + c;
			if constexpr (STEP == 4) {
				struct alignas(4 * sizeof(T)) Four { T v[4]; };
				if (aligned) {
					Four four = *reinterpret_cast<const Four *>(from);
#pragma unroll
					for (int i = 0; i < 4; i++) value[r][i] = float(four.v[i]);
				} else {
#pragma unroll
					for (int i = 0; i < 4; i++) value[r][i] = float(from[i]);
				}
			} else {
				value[r][0] = float(from[0]);
			}
		}
		unsigned int window[WINDOW];
		if constexpr (AXIS == 1) {
			const int block = c / BLOCK, blocks = in / BLOCK;
			const int at = (BLOCK - CODES - (c - block * BLOCK)) * BITS;
#pragma unroll
			for (int o = 0; o < OUT; o++) {
				const size_t ring = size_t(first + o < out ? first + o : out - 1) * blocks + block;
				const float scale = scales[ring];
				clade_trellis_window<WINDOW, WORDS>(window, rings + ring * WORDS, at);
#pragma unroll
				for (int i = 0; i < CODES; i++) {
					const float w = clade_trellis_value(clade_trellis_bits(window, (CODES - 1 - i) * BITS) & MASK, scale);
#pragma unroll
					for (int r = 0; r < R; r++) sum[r][o] = __fmaf_rn(w, value[r][i], sum[r][o]);
				}
			}
		} else {
			const int top = first < out ? first : out - OUT;
			const int block = top / BLOCK;
			const size_t ring = size_t(block) * in + c;
			const float scale = scales[ring];
			clade_trellis_window<WINDOW, WORDS>(window, rings + ring * WORDS, (BLOCK - CODES - (top - block * BLOCK)) * BITS);
#pragma unroll
			for (int o = 0; o < OUT; o++) {
				const float w = clade_trellis_value(clade_trellis_bits(window, (CODES - 1 - o) * BITS) & MASK, scale);
#pragma unroll
				for (int r = 0; r < R; r++) sum[r][o] = __fmaf_rn(w, value[r][0], sum[r][o]);
			}
		}
	}
#pragma unroll
	for (int r = 0; r < R; r++) {
#pragma unroll
		for (int o = 0; o < OUT; o++) {
#pragma unroll
			for (int half = 16; half > 0; half >>= 1) sum[r][o] = __fadd_rn(sum[r][o], __shfl_xor_sync(0xffffffffu, sum[r][o], half));
			if (lane == 0) partial[split][r][part][o] = sum[r][o];
		}
	}
	__syncthreads();
	for (int i = threadIdx.x; i < R * PARTS * OUT; i += SPLITS * PARTS * 32) {
		const int r = i / (PARTS * OUT), o = i - r * (PARTS * OUT);
		const int at = blockIdx.x * PARTS * OUT + o;
		float total = partial[0][r][o / OUT][o & (OUT - 1)];
#pragma unroll
		for (int s = 1; s < SPLITS; s++) total = __fadd_rn(total, partial[s][r][o / OUT][o & (OUT - 1)]);
		if (row + r < rows && at < out) y[size_t(row + r) * out + at] = T(total);
	}
