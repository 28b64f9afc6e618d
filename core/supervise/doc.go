// Package supervise starts one plugin process, talks to it, and says why it died.
//
// Life of a Process, in order:
//
//  1. Start makes a private 0700 directory with a short path, starts the executable in a process group of its own with an
//     allow-listed environment and a liveness pipe as stdin, and checks the handshake line itself.
//  2. go-plugin connects over the Unix socket with mutual TLS; a health check ends Start: the Process is ready.
//  3. Calls run; while one streams, the Process is busy. Silence for Spec.Silence on a stream is a hang.
//  4. Stop asks the plugin to drain and exit, then kills the group. A plugin may die earlier, or be killed for a hang.
//  5. The leader is reaped after its group was killed, so that no zombie and no grandchild is left; every call that was
//     running ends with the first cause of death; the directory is removed. The Process is dead and stays so: start another.
//
// Invariants: stdout and stderr of the plugin are read only here, in lines of bounded length; go-plugin gets in-process pipes
// that end with the process, carry nothing but the handshake line, and so can neither be fooled nor held by what a plugin
// prints. When the host dies, however it dies, the plugin sees EOF on its liveness pipe and exits; on Linux the kernel's
// parent-death signal is a second line. Goroutines end with the process; Done says when.
//
// Plugins run on Linux and macOS; elsewhere Start answers UnsupportedOption.
//
// Not for: choosing a plugin (core/plugins), deciding when to start another (core/loader, with a Breaker).
package supervise
