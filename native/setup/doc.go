// Command setup brings the native libraries that plugins load, and the few pinned packages that the Makefile uses.
//
//	setup [-root DIR] runtime [-variant cpu|metal|cuda13]   -> bin/runtime/<variant>/
//	setup [-root DIR] package USE DEST                      -> the files of a package of native/versions.json
//
// A runtime is made in steps, each of which leaves its result by one rename, so that a run that was killed at any
// point is simply run again:
//
//  1. the MLX wheels are downloaded by pip, checked against the digests of native/versions.json, and unpacked;
//  2. the mlx-c source is brought by cargo and its tree digest checked (or an installed mlx-c is taken, prefix.go);
//  3. libmlxc is built with CMake in a fresh folder, with RUNPATH $ORIGIN and nothing else;
//  4. libcladekernels is built with CMake (kernels.go), libguidance with cargo from native/guidance/Cargo.lock (guidance.go);
//  5. libraries, licences and runtime.json are staged beside bin/runtime/<variant> and swapped in.
//
// Invariants: nothing without a pinned digest is used; a finished runtime whose files still have their digests is
// never rebuilt; two runs at once are one after the other; no registry's address is known here, pip and cargo have
// their own.
//
// Not for: installing plugins or runtimes on a user's machine (core/plugins), nor what the libraries are for. The module has
// no dependencies on purpose, its tests included: it must run before anything else can be fetched.
package main
