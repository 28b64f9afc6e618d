// Package weights brings a model's parameters from its artifact into MLX memory.
//
// A graph declares its parameters (Param). Match pairs them, strictly, with the artifact's tensors from headers alone: every parameter is
// there with its shape, nothing is left over. The Set that results knows what loading takes, before a payload byte is read;
// Load then reads each tensor by pread from the range that sdk/artifact checked, into memory that MLX allocated.
//
// Invariants: no payload byte is read before Load; a mismatch is ArtifactCorrupt naming file and tensor; a format that this
// version does not decode is UnsupportedModel naming it. A matrix goes to the kernels packed with
// the values it is stored with, where the runtime has kernels; without them a quantized one is dequantized to float32 while it
// loads. The plan says so, and which formats take more bits packed than stored. Loading holds at most two pieces of the file and
// one as the kernels take it; its goroutines end with each piece.
// Not for: knowing an architecture's names (the family), doing arithmetic with them (sdk/nn).
package weights
