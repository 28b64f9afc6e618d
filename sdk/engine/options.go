package engine

import "github.com/clademl/clade/sdk/contract/cladev1"

// Options lists every field of Composition, GenerateStart and ScoreStart that the engine honours; sdk/plugin refuses the
// others by name.
func Options() []*cladev1.Option {
	return []*cladev1.Option{
		{Path: "device", Doc: "exact device name; the runtime's own device when absent"},
		{Path: "dtype", Doc: "float32, bfloat16 or float16: what activations and dense weights are"},
		{Path: "kv.plain", Doc: "native, or the name of the compute dtype"},
		{Path: "paging", Doc: "false"},
		{Path: "rows", Doc: "requests that run at once, 1 when absent; others wait, by priority"},
		{Path: "prefill_chunk", Doc: "most prompt tokens of one evaluation; results do not depend on it"},
		{Path: "context", Doc: "most tokens of a sequence"},
		{Path: "max_generation", Doc: "most tokens one request may generate"},
		{Path: "prefix_cache_bytes", Doc: "most bytes kept of the beginnings of earlier requests; less where the budget leaves less, which the plan says"},
		{Path: "memory_budget_bytes", Doc: "a plan beyond it is not opened; the allocator stays below it"},
		{Path: "kernels", Doc: "auto, off, require, which refuses a fallback, or fast, which rounds activations to 8 bits in front of quantized weights"},
		{Path: "deterministic", Doc: "tokens do not depend on other requests, chunks, restart or cache state; so with the CPU kernels, refused without"},
		{Path: "draft.dir", Doc: "a model of this plugin's own families: planned from its headers; not opened in this version, which is said"},
		{Path: "draft.graph", Doc: "the family graph id of that model"},
		{Path: "draft.depth", Doc: "most tokens drafted for a row at once, 1 to 64; of the kind ngram, which looks them up in the text itself, or two-model"},
		{Path: "pin", Doc: "processors of the kernels' threads, one each, the evaluating thread's first; refused without kernels"},
		{Path: "numa", Doc: "the memory node of packed weights, or interleave; refused without kernels"},
		{Path: "threads", Doc: "a maximum, for the CPU kernels; stock operations compute with one"},

		{Path: "prefix_cache", Doc: "whether the request reads from and adds to it; yes when absent"},
		{Path: "speculation.enabled", Doc: "whether tokens are drafted for the request; yes, where it pays, when absent; refused when the model was opened without a draft"},
		{Path: "speculation.depth", Doc: "most tokens drafted for it at once; 0 is none"},
		{Path: "max_tokens", Doc: "clamped to what the context leaves"},
		{Path: "stop_token_ids", Doc: "ids that end the generation; they are not emitted"},
		{Path: "priority", Doc: "lower is sooner among those that wait; 0 when absent"},
		{Path: "generated_prefix", Doc: "where generated ids begin in a request that goes on after a restart"},
		{Path: "constraint.json_schema", Doc: "holds the text to a JSON schema; docs/guidance.md has the keywords"},
		{Path: "constraint.json_object", Doc: "holds the text to being a JSON object"},
		{Path: "constraint.regex", Doc: "holds the whole text to an expression"},
		{Path: "constraint.lark", Doc: "holds the text to a Lark grammar"},
		{Path: "constraint.choice", Doc: "holds the text to one of some"},
		{Path: "constraint.compact_whitespace", Doc: "no white space between the tokens of JSON"},
		{Path: "choice", Doc: "index of the choice; part of the noise key"},
		{Path: "logprobs", Doc: "after bias and penalties, before temperature and filters; top up to 64"},
		{Path: "sampling.temperature", Doc: "0 is greedy; applied after the filters"},
		{Path: "sampling.top_p", Doc: "in (0, 1]; first filter"},
		{Path: "sampling.min_p", Doc: "in [0, 1]; second filter"},
		{Path: "sampling.typical_p", Doc: "in (0, 1]; third filter: the tokens nearest to the entropy that hold so much of the probability"},
		{Path: "sampling.xtc_probability", Doc: "in [0, 1]; fourth filter: how often the likeliest above the threshold are left out"},
		{Path: "sampling.xtc_threshold", Doc: "in [0, 0.5], 0.1 when absent; of all tokens above it the least likely stays, and stop ids stay"},
		{Path: "sampling.top_k", Doc: "fifth filter; 0 keeps all"},
		{Path: "sampling.repetition", Doc: "divides positive logits of seen tokens, multiplies negative ones"},
		{Path: "sampling.presence", Doc: "subtracted once from the logits of seen tokens"},
		{Path: "sampling.frequency", Doc: "subtracted once for each occurrence"},
		{Path: "sampling.logit_bias", Doc: "added to logits by id"},
		{Path: "sampling.seed", Doc: "drawn and reported when absent"},
		{Path: "sampling.min_tokens", Doc: "no stop id is sampled before so many tokens"},
		{Path: "sampling.ignore_eos", Doc: "only stop_token_ids end the generation"},
	}
}
