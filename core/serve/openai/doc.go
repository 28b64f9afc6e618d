// Package openai serves the OpenAI API over models that its caller supplies: chats, bare completions and the list of models.
//
// Fields of a body are honoured or refused by name with 400; nothing is ignored. Accepted without effect, because they
// ask for nothing that changes an answer: user, metadata, safety_identifier, prompt_cache_key, store: false,
// service_tier: auto|default, modalities: ["text"], response_format: {type: text}, and null for every
// known field. Beyond OpenAI's own: top_k, min_p, typical_p, xtc_probability, xtc_threshold, priority (lower is sooner, as in
// vLLM), speculative.n_max (most tokens drafted at once, 0 for none, as in llama.cpp's server), lora (adapters by name: a list of {id, scale}, or a text such as "a+b:0.5" or "none"; an adapter's name may also stand in the place of
// the model's), repetition_penalty, min_tokens, ignore_eos, chat_template_kwargs, documents, and vLLM's structured_outputs and
// guided_* (constraint.go).
// The role developer is the system's, as OpenAI defines it.
//
// A model's reasoning is reasoning_content, and is taken back under that name. A call of a tool is sent whole, in one delta, when it
// has been read: its arguments are JSON at every chunk. Text that looks like a call but cannot be read, or names a tool that was not
// offered, stays content, and clade.notes says why. tool_choice required or a function holds the answer to a grammar; then a model
// that can switch its reasoning does not reason. parallel_tool_calls: false gives the first call only.
//
// Embeddings have length 1. Beyond OpenAI's fields: instruction, what the texts are searched for, put before each as the model's family
// has it. Texts get what the family ends them with; token ids are taken as they are.
//
// A response carries "clade", an object with the device, dtype, graph and plugin that made it, and tool_call_repairs, what had to be
// mended to read a call.
//
// Invariants: an error is {error: {message, type, code, param}} with its Kind's status, or, once a
// stream has begun, a last data event of the same shape with no [DONE] after it; a client that goes away cancels its
// request. Not for: listening, keys or draining (core/serve).
package openai
