// Package adapters holds the low-rank adapters of an open model: which are loaded, who uses them, and what they take.
//
// An adapter is first fitted to the model from headers (Fit): every module that it changes is a linear layer of the graph, with the
// layer's sizes, or the whole adapter is refused naming the one that is not. A Book then loads it. Requests take a stack of loaded
// adapters and give it back; one that is unloaded is found by no new request, and freed when the last that has it ends.
//
// Invariants: the bytes of all loaded adapters, of those that leave too, stay within the Book's limit; what is freed is in no later
// forward; an id names one adapter at a time. Not for: the file formats (sdk/artifact/lora), the arithmetic (sdk/nn), waiting rows.
package adapters
