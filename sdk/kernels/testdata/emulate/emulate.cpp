// Runs the sources of the trellis kernels on the CPU, a fiber for a thread of a group: what they compute, before there is a GPU. It tells
// nothing of speed, nor of what a GPU's compiler takes.
//
//	emulate linear|rows BITS BLOCK STATE AXIS R rows in out <activations or ids, rings, scales >result
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

struct Index {
	int x, y, z;
};

static Index block, blocks; // of the grid; threads of one
static unsigned fiber;      // the running thread
static std::vector<float> slots(1024);
static std::vector<ucontext_t> contexts;
static std::vector<char> done;
static std::function<void()> body;

// together lets every other thread come to the same place.
static void together() {
	unsigned self = fiber, next = (fiber + 1) % contexts.size();
	fiber = next;
	swapcontext(&contexts[self], &contexts[next]);
}

static float shuffle(float v, int mask) {
	slots[fiber] = v;
	together();
	float other = slots[fiber ^ mask];
	together();
	return other;
}

#ifdef METAL
#include "metal.h"
#include "../../sources/trellis.metal"
#define LINEAR "../../sources/trellis_linear.metal"
#define ROWS "../../sources/trellis_rows.metal"
#else
#include "cuda.h"
#include "../../sources/trellis.cuh"
#define LINEAR "../../sources/trellis_linear.cu"
#define ROWS "../../sources/trellis_rows.cu"
#endif

struct Call {
	const float *x;
	const int *ids;
	const unsigned int *rings;
	const float *scales;
	float *y;
	int x_shape[2], rings_shape[2], scales_shape[2];
};

template <int BITS, int BLOCK, int STATE, int AXIS, int R>
static void linear(const Call &call) {
	using T = float;
	const T *x = call.x;
	const unsigned int *rings = call.rings;
	const float *scales = call.scales;
	const int *x_shape = call.x_shape, *rings_shape = call.rings_shape;
	T *y = call.y;
#include LINEAR
}

template <int BITS, int BLOCK, int STATE, int AXIS>
static void rows_of(const Call &call) {
	using T = float;
	const int *ids = call.ids, *scales_shape = call.scales_shape;
	const unsigned int *rings = call.rings;
	const float *scales = call.scales;
	T *y = call.y;
#include ROWS
}

// start is a thread's life: threads end in their order, each handing on to the next.
static void start() {
	body();
	unsigned self = fiber;
	done[self] = 1;
	if (self + 1 < contexts.size()) {
		fiber = self + 1;
		setcontext(&contexts[fiber]);
	}
}

static void group(int threads) {
	static std::vector<std::vector<char>> stacks(1024);
	ucontext_t home;
	contexts.assign(threads, ucontext_t{});
	done.assign(threads, 0);
	for (int i = 0; i < threads; i++) {
		stacks[i].resize(64 << 10);
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i].data();
		contexts[i].uc_stack.ss_size = stacks[i].size();
		contexts[i].uc_link = &home; // the last one's
		makecontext(&contexts[i], start, 0);
	}
	fiber = 0;
	swapcontext(&home, &contexts[0]);
	for (char d : done) {
		if (!d) std::fprintf(stderr, "a thread of the group did not end\n"), std::exit(1);
	}
}

static void grid(int x, int y, int threads) {
	blocks = {threads, 1, 1};
	for (block.y = 0; block.y < y; block.y++) {
		for (block.x = 0; block.x < x; block.x++) group(threads);
	}
}

template <typename T>
static std::vector<T> take(size_t n) {
	std::vector<T> v(n);
	if (std::fread(v.data(), sizeof(T), n, stdin) != n) std::fprintf(stderr, "the input ends early\n"), std::exit(1);
	return v;
}

int main(int, char **argv) {
	int v[8];
	for (int i = 0; i < 8; i++) v[i] = std::atoi(argv[2 + i]);
	const int bits = v[0], length = v[1], state = v[2], axis = v[3], r = v[4], rows = v[5], in = v[6], out = v[7];
	const bool multiply = !std::strcmp(argv[1], "linear");
	std::vector<float> x, y(size_t(rows) * (multiply ? out : in));
	std::vector<int> ids;
	if (multiply) x = take<float>(size_t(rows) * in);
	else ids = take<int>(rows);
	std::vector<unsigned int> rings = take<unsigned int>(size_t(out) * in * bits / 32);
	std::vector<float> scales = take<float>(size_t(out) * in / length);
	const int lines = axis == 1 ? out : out / length;
	Call call{x.data(), ids.data(), rings.data(), scales.data(), y.data(), {rows, in}, {lines, int(rings.size()) / lines}, {lines, int(scales.size()) / lines}};
	bool ran = false;
#define CASE(BITS, BLOCK, STATE, AXIS, R)                                                              \
	if (!ran && bits == BITS && length == BLOCK && state == STATE && axis == AXIS && (r == R || !multiply)) { \
		if (multiply) body = [&] { linear<BITS, BLOCK, STATE, AXIS, R>(call); };                       \
		else body = [&] { rows_of<BITS, BLOCK, STATE, AXIS>(call); };                                  \
		ran = true;                                                                                    \
	}
#include "cases.inc"
	if (!ran) std::fprintf(stderr, "no such case was compiled\n"), std::exit(1);
	if (multiply) grid(axis == 1 ? (out + 7) / 8 : (out + 15) / 16, (rows + r - 1) / r, 256);
	else grid((in + 127) / 128, rows, 128);
	return std::fwrite(y.data(), sizeof(float), y.size(), stdout) == y.size() ? 0 : 1;
}
