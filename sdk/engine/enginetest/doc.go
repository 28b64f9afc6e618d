// Package enginetest is what tests of a graph share: an engine over a tiny checkpoint, its logits and ids, and the oracle's goldens.
//
// It opens a model as a plugin does, through the plugin's own record and the graph's Read and Build, and sees that the test leaves no
// array behind. Not for: tests of a plugin's process (sdk/plugintest).
package enginetest
