// llguidance's C interface as far as it is used here, called through pointers that cg_open fills from a library opened by path.
#ifndef CLADE_GUIDANCE_SHIM_H
#define CLADE_GUIDANCE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The ABI of native/guidance/src/lib.rs.
enum { CG_ABI = 1 };

// cg_open opens a library and looks up every function. NULL is success; else a text of this thread, valid until the next call.
const char *cg_open(const char *path);
const char *cg_version(void);

// cg_vocabulary makes a tokenizer of llguidance: n tokens, their bytes one after the other, the first of eos and the others.
// handle is handed to cgTokenize; 0 leaves forced text to the sampler. NULL is a failure, its text is in error.
void *cg_vocabulary(uint32_t n, const uint32_t *lens, const uint8_t *bytes, const uint32_t *eos, uint32_t n_eos, uintptr_t handle,
                    char *error, size_t error_len);
void cg_vocabulary_free(void *vocabulary);

// cg_matcher compiles a grammar; NULL means that there was no memory or no thread for it. Ask cg_error before use.
void *cg_matcher(void *vocabulary, const char *kind, const char *text, size_t max_states);
const char *cg_error(void *matcher);
void cg_matcher_free(void *matcher);
void *cg_matcher_clone(void *matcher);
int cg_mask(void *matcher, uint32_t *dst, size_t bytes);
int cg_commit(void *matcher, const uint32_t *ids, size_t n);
int cg_rollback(void *matcher, size_t n);
int cg_valid(void *matcher, const uint32_t *ids, size_t n);
int cg_forced(void *matcher, uint32_t *dst, size_t n);
bool cg_accepting(void *matcher);
bool cg_stopped(void *matcher);

#endif
