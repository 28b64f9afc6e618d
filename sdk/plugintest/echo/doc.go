// Package echo is a family without native code: what the conformance suite is tested on, and what tests of the host run
// where they need a plugin that starts in milliseconds and can be read in a minute.
//
// Its model is a state machine. The state behind a token is a hash of the state before it, the token and a word of the
// weights; logits are a hash of the state and the id. So logits are a pure function of the ids and the weights, and every
// rule of the contract can be kept or broken in one place: rows share a batch, sequences live in slots, states are kept
// for the prefix cache.
//
// Binaries: Build makes one at a version of your choice, in a folder as the host finds it, so that an upgrade can be
// tested; WriteModel writes a model of it with a tokenizer.
//
//	echo.Build(filepath.Join(dir, "echo"), "0.2.0")
//	echo.WriteModel(modelDir, echo.Shape{StepMicros: 2000})
//
// Faults are seeded errors, each of which the suite must find; a served family has none of them. Invariants: native-free;
// nothing depends on time but the pace of steps. Not for: saying anything.
package echo
