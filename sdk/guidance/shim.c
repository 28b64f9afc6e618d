#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "_cgo_export.h"

// The layouts of llguidance.h 1.9.1; the version is checked before any of them is used.
typedef struct {
	size_t struct_size;
	uint32_t vocab_size;
	uint32_t tok_eos;
	const uint32_t *token_lens;
	const uint8_t *token_bytes;
	const char *tokenizer_json;
	bool tokenize_assumes_string;
	size_t (*tokenize_fn)(const void *, const uint8_t *, size_t, uint32_t *, size_t);
	bool use_approximate_greedy_tokenize_fn;
	const void *tokenize_user_data;
	const char *const *slices;
	const uint32_t *tok_eos_extra;
	uint32_t tok_eos_extra_count;
} tokenizer_init;

typedef struct {
	size_t max_items_in_row;
	uint64_t initial_lexer_fuel;
	uint64_t step_lexer_fuel;
	size_t step_max_items;
	size_t max_lexer_states;
	size_t max_grammar_size;
	bool precompute_large_lexemes;
	bool verbose_errors;
} parser_limits;

typedef struct {
	const void *tokenizer;
	uint32_t log_buffer_level;
	uint32_t log_stderr_level;
	bool ff_tokens_ok;
	bool backtrack_ok;
	parser_limits limits;
} constraint_init;

static struct {
	uint32_t (*clade_guidance_abi)(void);
	void *(*clade_guidance_new_matcher)(const constraint_init *, const char *, const char *);
	const char *(*llg_get_version)(void);
	void *(*llg_new_tokenizer_v2)(const tokenizer_init *, char *, size_t);
	void (*llg_free_tokenizer)(void *);
	void (*llg_constraint_init_set_defaults)(constraint_init *, const void *);
	const char *(*llg_matcher_get_error)(void *);
	void (*llg_free_matcher)(void *);
	void *(*llg_clone_matcher)(const void *);
	int32_t (*llg_matcher_compute_mask_into)(void *, uint32_t *, size_t);
	int32_t (*llg_matcher_consume_tokens)(void *, const uint32_t *, size_t);
	int32_t (*llg_matcher_rollback)(void *, size_t);
	int32_t (*llg_matcher_validate_tokens)(void *, const uint32_t *, size_t);
	int32_t (*llg_matcher_compute_ff_tokens)(void *, uint32_t *, size_t);
	bool (*llg_matcher_is_accepting)(void *);
	bool (*llg_matcher_is_stopped)(const void *);
} lib;

static _Thread_local char message[1024];

static bool resolve(void *handle, void **at, const char *name) {
	*at = dlsym(handle, name);
	if (*at == NULL) snprintf(message, sizeof message, "it lacks %s", name);
	return *at != NULL;
}

const char *cg_open(const char *path) {
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL) {
		snprintf(message, sizeof message, "%s", dlerror());
		return message;
	}
#define RESOLVE(name) \
	if (!resolve(handle, (void **)&lib.name, #name)) return message
	RESOLVE(clade_guidance_abi);
	if (lib.clade_guidance_abi() != CG_ABI) {
		snprintf(message, sizeof message, "its ABI is %u, this plugin was built for %d", lib.clade_guidance_abi(), CG_ABI);
		return message;
	}
	RESOLVE(clade_guidance_new_matcher);
	RESOLVE(llg_get_version);
	RESOLVE(llg_new_tokenizer_v2);
	RESOLVE(llg_free_tokenizer);
	RESOLVE(llg_constraint_init_set_defaults);
	RESOLVE(llg_matcher_get_error);
	RESOLVE(llg_free_matcher);
	RESOLVE(llg_clone_matcher);
	RESOLVE(llg_matcher_compute_mask_into);
	RESOLVE(llg_matcher_consume_tokens);
	RESOLVE(llg_matcher_rollback);
	RESOLVE(llg_matcher_validate_tokens);
	RESOLVE(llg_matcher_compute_ff_tokens);
	RESOLVE(llg_matcher_is_accepting);
	RESOLVE(llg_matcher_is_stopped);
#undef RESOLVE
	return NULL;
}

const char *cg_version(void) { return lib.llg_get_version(); }

static size_t tokenize(const void *user, const uint8_t *bytes, size_t n, uint32_t *out, size_t room) {
	return cgTokenize((uintptr_t)user, (uint8_t *)bytes, n, out, room);
}

void *cg_vocabulary(uint32_t n, const uint32_t *lens, const uint8_t *bytes, const uint32_t *eos, uint32_t n_eos, uintptr_t handle,
                    char *error, size_t error_len) {
	tokenizer_init init;
	memset(&init, 0, sizeof init);
	init.struct_size = sizeof init;
	init.vocab_size = n;
	init.token_lens = lens;
	init.token_bytes = bytes;
	init.tok_eos = n_eos > 0 ? eos[0] : UINT32_MAX;
	init.tok_eos_extra = n_eos > 1 ? eos + 1 : NULL;
	init.tok_eos_extra_count = n_eos > 1 ? n_eos - 1 : 0;
	init.tokenize_fn = handle != 0 ? tokenize : NULL;
	init.tokenize_user_data = (const void *)handle;
	init.tokenize_assumes_string = handle != 0;
	init.use_approximate_greedy_tokenize_fn = handle == 0;
	error[0] = '\0';
	return lib.llg_new_tokenizer_v2(&init, error, error_len);
}

void cg_vocabulary_free(void *vocabulary) { lib.llg_free_tokenizer(vocabulary); }

void *cg_matcher(void *vocabulary, const char *kind, const char *text, size_t max_states) {
	constraint_init init;
	memset(&init, 0, sizeof init);
	lib.llg_constraint_init_set_defaults(&init, vocabulary);
	init.log_buffer_level = init.log_stderr_level = 0;
	init.limits.verbose_errors = false; // its words go to the caller, who knows the grammar
	init.limits.max_lexer_states = max_states;
	return lib.clade_guidance_new_matcher(&init, kind, text);
}

const char *cg_error(void *matcher) { return lib.llg_matcher_get_error(matcher); }
void cg_matcher_free(void *matcher) { lib.llg_free_matcher(matcher); }
void *cg_matcher_clone(void *matcher) { return lib.llg_clone_matcher(matcher); }
int cg_mask(void *matcher, uint32_t *dst, size_t bytes) { return lib.llg_matcher_compute_mask_into(matcher, dst, bytes); }
int cg_commit(void *matcher, const uint32_t *ids, size_t n) { return lib.llg_matcher_consume_tokens(matcher, ids, n); }
int cg_rollback(void *matcher, size_t n) { return lib.llg_matcher_rollback(matcher, n); }
int cg_valid(void *matcher, const uint32_t *ids, size_t n) { return lib.llg_matcher_validate_tokens(matcher, ids, n); }
int cg_forced(void *matcher, uint32_t *dst, size_t n) { return lib.llg_matcher_compute_ff_tokens(matcher, dst, n); }
bool cg_accepting(void *matcher) { return lib.llg_matcher_is_accepting(matcher); }
bool cg_stopped(void *matcher) { return lib.llg_matcher_is_stopped(matcher); }
