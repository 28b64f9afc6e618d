// Package openai serves the OpenAI chat API over models that its caller supplies.
//
// Fields of a body are honoured or refused by name with 400; nothing is ignored. Accepted without effect, because they
// ask for nothing that changes an answer: user, metadata, safety_identifier, prompt_cache_key, store: false,
// service_tier: auto|default, tool_choice: none, modalities: ["text"], response_format: {type: text}, and null for every
// known field. Beyond OpenAI's own: top_k, min_p, repetition_penalty, min_tokens, ignore_eos, chat_template_kwargs,
// and vLLM's structured_outputs and guided_* (constraint.go).
// The role developer is the system's, as OpenAI defines it.
//
// A response carries "clade", an object with the device, dtype, graph and plugin that made it.
//
// Invariants: one choice a request; an error is {error: {message, type, code, param}} with its Kind's status, or, once a
// stream has begun, a last data event of the same shape with no [DONE] after it; a client that goes away cancels its
// request. Not for: listening, keys or draining (core/serve).
package openai
