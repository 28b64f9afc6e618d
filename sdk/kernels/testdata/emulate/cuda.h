// What the CUDA sources use of the language, for a C++ compiler.
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define threadIdx (Index{int(fiber), 0, 0})
#define blockIdx block
#define blockDim blocks

static unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int by) {
	return (unsigned int)(((unsigned long long)high << 32 | low) >> (by & 31));
}

static unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
	for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
	return c;
}

static float __uint_as_float(unsigned int v) {
	float f;
	std::memcpy(&f, &v, 4);
	return f;
}

static float __fadd_rn(float a, float b) { return a + b; }
static float __fsub_rn(float a, float b) { return a - b; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static float __shfl_xor_sync(unsigned int, float v, int mask) { return shuffle(v, mask); }
static void __syncthreads() { together(); }
