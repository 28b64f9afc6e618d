// Package kernels is the registry of compute kernels that MLX itself does not have.
//
// A kernel is a value: a name, a signature, the devices it is for, and the graph of stock MLX operations that stands in for
// it. Kernels live in the runtime's libcladekernels; a runtime without that library, or with one that lacks a kernel,
// runs the fallback, and the plan says which and why.
//
// Invariants: a kernel that is listed has a fallback that computes the same thing; nothing falls back without a reason that
// a person can read. Not for: choosing a graph (the families' tables), loading libraries at build time.
package kernels

import (
	"slices"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Kernel is one registered kernel.
type Kernel struct {
	Name string
	// Signature tells inputs and output, shapes and dtypes: "x [T, in] f32, w [out, in] q4_1 -> [T, out] f32".
	Signature string
	// Devices are prefixes of device names: "cpu-x86_64", "cuda".
	Devices []string
	// Fallback says which stock operations stand in.
	Fallback string
}

// Library is what a runtime's libcladekernels offers.
type Library interface {
	// Has reports whether the library exports the kernel.
	Has(name string) bool
	// SelfTest compares the kernel with its fallback.
	SelfTest(name string) error
}

// Registry is an immutable list of kernels with what the loaded runtime makes of them.
type Registry struct {
	kernels []Kernel
	loaded  bool
	library Library
	reason  string // why there is no library
}

// NewRegistry lists kernels before any runtime is loaded.
func NewRegistry(kernels ...Kernel) Registry { return Registry{kernels: slices.Clone(kernels)} }

// With is the registry once a runtime with a kernel library is loaded.
func (r Registry) With(library Library) Registry {
	return Registry{kernels: r.kernels, loaded: true, library: library}
}

// Without is the registry once a runtime is loaded whose library cannot serve, for that reason.
func (r Registry) Without(reason string) Registry {
	return Registry{kernels: r.kernels, loaded: true, reason: reason}
}

// Describe is the answer of the Describe RPC.
func (r Registry) Describe() []*cladev1.Kernel {
	out := make([]*cladev1.Kernel, 0, len(r.kernels))
	for _, k := range r.kernels {
		d := &cladev1.Kernel{Name: k.Name, Signature: k.Signature, Devices: k.Devices}
		d.SelfTest, d.Reason = r.test(k)
		out = append(out, d)
	}
	return out
}

// Choose says for each kernel of a plan whether it runs.
func (r Registry) Choose(names ...string) []*cladev1.KernelChoice {
	var out []*cladev1.KernelChoice
	for _, k := range r.kernels {
		if !slices.Contains(names, k.Name) {
			continue
		}
		state, reason := r.test(k)
		choice := &cladev1.KernelChoice{Name: k.Name, Native: state == cladev1.SelfTest_SELF_TEST_PASSED}
		if !choice.Native {
			choice.Reason = reason + "; " + k.Fallback
		}
		out = append(out, choice)
	}
	return out
}

func (r Registry) test(k Kernel) (cladev1.SelfTest, string) {
	switch {
	case !r.loaded:
		return cladev1.SelfTest_SELF_TEST_NOT_RUN, "no runtime is loaded yet"
	case r.library == nil:
		return cladev1.SelfTest_SELF_TEST_MISSING, r.reason
	case !r.library.Has(k.Name):
		return describeLack(r.library, k.Name)
	}
	if err := r.library.SelfTest(k.Name); err != nil {
		return cladev1.SelfTest_SELF_TEST_FAILED, err.Error()
	}
	return cladev1.SelfTest_SELF_TEST_PASSED, ""
}
