package engine

import "github.com/clademl/clade/sdk/kernels"

// LinearQuantized multiplies by packed weights. No runtime has it yet: its place in the registry is what lets a plan say so.
var LinearQuantized = kernels.Kernel{
	Name:      "linear_quantized",
	Signature: "x [T, in], w [out, in] packed as Q4_0, Q4_1, Q8_0 or affine -> [T, out]",
	Devices:   []string{"cpu-x86_64", "cpu-arm64"},
	Fallback:  "weights are float32 after load and MLX multiplies them",
}
