package mlx

// #include "shim.h"
import "C"

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// OpError is an operation that MLX refused: its name, the shapes of its inputs in order, and MLX's own words.
type OpError struct {
	Op      string
	Shapes  [][]int
	Message string
}

// Error reads "matmul: [2 3] x [4 5]: <MLX's message>".
func (e *OpError) Error() string {
	if len(e.Shapes) == 0 {
		return e.Op + ": " + e.Message
	}
	parts := make([]string, len(e.Shapes))
	for i, s := range e.Shapes {
		parts[i] = fmt.Sprint(s)
	}
	return fmt.Sprintf("%s: %s: %s", e.Op, strings.Join(parts, " x "), e.Message)
}

// Unwrap gives the error its Kind: OutOfMemory when the allocator said no, else Internal.
func (e *OpError) Unwrap() error {
	kind := contract.Internal
	m := strings.ToLower(e.Message)
	if strings.Contains(m, "out of memory") || strings.Contains(m, "unable to allocate") || strings.Contains(m, "[malloc") {
		kind = contract.OutOfMemory
	}
	return &contract.Error{Kind: kind, Message: e.Error()}
}

// sourcePlace is the " at FILE:LINE" that mlx-c appends: its own build's path, of no use to the reader.
var sourcePlace = regexp.MustCompile(` at \S+:\d+$`)

// takeMessage returns and clears the message that the last failed call left on this thread.
func takeMessage() string {
	msg := C.GoString(C.cx_take_error())
	if msg == "" {
		return "failed without a message"
	}
	return strings.Join(strings.Fields(sourcePlace.ReplaceAllString(msg, "")), " ")
}
