// Package plugintest runs the conformance suite of sdk/plugintest/check as Go tests: one subtest a check.
//
//	func TestThePluginKeepsTheContract(t *testing.T) {
//		plugintest.Run(t, check.Options{Path: exe, Model: dir, Runtime: runtime})
//	}
//
// Beside it: check, the suite itself, which `clade plugin check` runs on any binary; echo, a family without native code;
// tiny, small checkpoints for graphs. Not for: fidelity, which a family's own tests hold to their oracle.
package plugintest
