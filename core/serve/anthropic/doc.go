// Package anthropic serves the Anthropic Messages API over the models that the OpenAI API serves: POST /v1/messages, as JSON or as
// server-sent events, and POST /v1/messages/count_tokens.
//
// Fields of a body are honoured or refused by name with 400. Accepted without effect, because they ask for nothing that changes
// an answer: metadata, cache_control, service_tier. thinking.budget_tokens is a target in the API; here a thought counts against
// max_tokens alone, which clade.notes says. Without "thinking" the server's, the family's or the template's choice holds.
//
// Beyond the API: lora, as the OpenAI API has it.
//
// A response carries "clade", as the OpenAI API's does. Blocks come in the order in which the model wrote them; a thought's
// signature is empty and not asked back. Not for: images, documents, server tools, prefill; they are refused by name.
package anthropic
