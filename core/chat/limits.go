package chat

import "time"

// Limits on a template. The largest published templates are about 30 KB, render in milliseconds and nest brackets about
// ten deep.
const (
	maxSource   = 256 << 10
	maxBrackets = 128
	maxSteps    = 1 << 20       // loop iterations and macro calls of one rendering
	maxFrames   = 1 << 14       // Go stack frames: a macro that calls itself ends here
	maxOutput   = 64 << 20      // of a prompt, and of any value
	maxWritten  = 4 * maxOutput // with what macros and blocks wrote on the way
	maxTerms    = 1024          // of one chain of operators
	maxRange    = 100_000       // jinja2's own limit in its sandbox
	maxDepth    = 128           // nesting of a message's JSON
	maxRender   = 10 * time.Second
)

const subject = "chat template"
