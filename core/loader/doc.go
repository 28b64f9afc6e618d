// Package loader turns a local model into one that generates.
//
// Life of a model, numbered as in docs/architecture.md:
//
//  1. Decide opens the artifact (headers only), finds its family record, reads its config, checks the plugin is there and
//     picks profile and matrix cell.
//  2. Decision.Plan starts the plugin's process, resolves the composition, proposes a graph and asks for the plan, twice
//     when the first answer fixes what was open (the device).
//  3. Planned.Open admits the plan against the memory budget and opens the model in the same process.
//  4. Model.Generate and Model.Score run requests, as many at once as the composition has rows; others queue.
//  5. When the process dies, Ready or whoever needs it starts another one behind a back-off and a circuit breaker, and running
//     requests go on in it: prompt and generated ids are its prompt. A request that ends the process also alone is given up
//     (resume.go, court.go).
//  6. Close stops the process and releases the artifact.
//
// Invariants: nothing large is read by the host; a pairing of loader and loop that cannot be honoured is refused, never
// replaced; on a failed step what was opened is released; a plan that differs from the admitted one is never opened. Not
// for: HTTP (core/serve), templates (core/chat).
package loader
