// Package mlx is the binding to MLX through mlx-c, loaded at run time from one directory.
//
// For: model code (sdk/nn, sdk/kv, sdk/weights, sdk/engine, families). [Open] loads a runtime, [Runtime.NewWorker] makes the
// thread that computes, [Worker.Do] runs a function on it with a [Scope], and every operation is a method of that scope:
//
//	err := w.Do(ctx, func(s *mlx.Scope) error {
//		x := mlx.FromSlice(s, []float32{1, 2, 3, 4}, 2, 2)
//		y := s.Softmax(s.Matmul(x, x), -1, true) // [2, 2]
//		out, err := mlx.ToSlice[float32](s, y)   // evaluates
//		...
//		return err
//	})
//
// Invariants:
//   - Nothing is loaded before Open; building needs a C compiler and nothing of MLX. Open takes the one version it was
//     generated for and names what is missing.
//   - MLX streams belong to threads. A Scope and its arrays are used only inside the Do that made it, on its goroutine;
//     kept arrays only inside a Do of the same worker. Shape, DType and NBytes of an array are no exception.
//   - A scope owns every array made in it; closing it frees them all. Keep moves an array out, to an owner that calls Close;
//     Adopt moves one in. There are no finalizers and no package-level lists; [LiveHandles] is zero when all is closed.
//   - The first error sticks. After it every operation of the scope, its parents and children returns an inert array, whose
//     shape is empty, and Err tells which operation failed on which shapes. Model code checks once, at the end.
//   - Every return code of mlx-c is checked, also of calls that free. No panic leaves the package: Do returns one in fn as
//     an error with the stack.
//   - A failed evaluation poisons the worker: an operation that fails inside AsyncEval reports nothing there, the next
//     evaluation on the stream gets the error, and the array that failed then counts as available with undefined values. So
//     after any failure of Eval, AsyncEval, Synchronize or a read, every array evaluated since the last clean Synchronize is
//     suspect. [Worker.Poisoned] counts these failures; reads are refused until a clean [Scope.Synchronize] resets it, and
//     the owner of in-flight state drops it and computes it again.
//   - MLX's compiled functions shell out to a C++ compiler on the CPU: a runtime without a GPU has them off.
//
// Not for: reading model files (mlx_load_* is never called: sdk/weights preads validated ranges into Empty), and deciding
// which device, dtype or kernel to use.
//
// Index operations (Take, Gather, Scatter) do not check indices against the array: that is the caller's duty, before the call.
package mlx

//go:generate go run ./internal/gen -dir .
