"""Compiles the CUDA sources of sdk/kernels with NVRTC, as MLX does when they first run, without a GPU.

    python compile.py SOURCES [ARCHITECTURE]

It needs the packages nvidia-cuda-nvrtc and nvidia-cuda-runtime (for cuda_fp16.h and cuda_bf16.h). What MLX writes around a body is written
here anew: a function of pointers named as inputs and output, NAME_shape where the body has that word, and constants in front.
"""
import ctypes
import glob
import importlib.util
import itertools
import pathlib
import sys

sources, arch = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "sm_90"
PRELUDE = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Shape { int data[10]; __device__ const int &operator[](int i) const { return data[i]; } };
"""
TYPES = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}
KERNELS = {  # inputs with their types; None is the dtype of activations
    "trellis_linear": ([("x", None), ("rings", "unsigned int"), ("scales", "float")], ["BITS", "BLOCK", "STATE", "AXIS", "R"]),
    "trellis_rows": ([("ids", "int"), ("rings", "unsigned int"), ("scales", "float")], ["BITS", "BLOCK", "STATE", "AXIS"]),
}
FORMATS = [(2, 256, 16), (2, 16, 32), (1, 32, 24), (3, 32, 16), (5, 32, 32), (8, 16, 8)]


def wrapped(name, dtype, constants):
    inputs, names = KERNELS[name]
    body = (sources / f"{name}.cu").read_text()
    lines = []
    for n, t in inputs:
        lines.append(f"const {t or TYPES[dtype]}* {n}")
        if f"{n}_shape" in body:
            lines.append(f"const __grid_constant__ Shape {n}_shape")
    lines.append(f"{TYPES[dtype]}* y")
    head = f"  using T = {TYPES[dtype]};\n" + "".join(f"  constexpr int {n} = {v};\n" for n, v in zip(names, constants))
    return PRELUDE + (sources / "trellis.cuh").read_text() + f"extern \"C\" __global__ void {name}({', '.join(lines)}) {{\n{head}\n{body}\n}}\n"


def library():
    roots = importlib.util.find_spec("nvidia").submodule_search_locations
    found = [p for r in roots for p in sorted(glob.glob(f"{r}/**/libnvrtc.so.*", recursive=True)) if "builtins" not in p]
    headers = [p for r in roots for p in glob.glob(f"{r}/**/cuda_fp16.h", recursive=True)]
    lib = ctypes.CDLL(found[0])
    lib.nvrtcGetErrorString.restype = ctypes.c_char_p
    return lib, str(pathlib.Path(headers[0]).parent)


def compile(lib, include, name, text):
    program = ctypes.c_void_p()
    check(lib, lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), f"{name}.cu".encode(), 0, None, None))
    options = [f"--gpu-architecture={arch}".encode(), f"--include-path={include}".encode()]
    rc = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    lib.nvrtcGetProgramLog(program, log)
    if rc != 0:
        sys.exit(f"{name} does not compile for {arch}: {lib.nvrtcGetErrorString(rc).decode()}\n{log.value.decode()}")
    check(lib, lib.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    check(lib, lib.nvrtcGetCUBIN(program, code))
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw, log.value.decode()


def check(lib, rc):
    if rc != 0:
        sys.exit(lib.nvrtcGetErrorString(rc).decode())


lib, include = library()
major, minor = ctypes.c_int(), ctypes.c_int()
lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
count = 0
for (k, T, L), axis, dtype in itertools.product(FORMATS, (0, 1), TYPES):
    if dtype != "float32" and k != 2:
        continue
    for name, (_, names) in KERNELS.items():
        for r in ((1, 8) if "R" in names else (0,)):
            code, log = compile(lib, include, name, wrapped(name, dtype, [k, T, L, axis, r]))
            assert code[:4] == b"\x7fELF", name
            if log.strip("\0 \n"):
                print(log)
            count += 1
print(f"{count} kernels compiled for {arch} by NVRTC {major.value}.{minor.value}")
