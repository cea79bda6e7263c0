// Translates one sentence at a time from two files: a bundle's weights, which are mapped into memory, and the numbers of
// its plan. The examples in C, Kotlin and Swift share it.
#ifndef EDGEFORMER_SENTENCE_H
#define EDGEFORMER_SENTENCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// An opened model; may be used by several threads at a time.
typedef struct sentence_model sentence_model;

// What the manifest says of a search: see `special` and `generation` of the bundle format.
typedef struct {
  const int64_t* begin;       // `bos`, then `prefix`
  int64_t begin_count;
  const int64_t* suppressed;  // `suppress`, in ascending order
  int64_t suppressed_count;
  const int64_t* forbidden;   // `forbid`, in ascending order
  int64_t forbidden_count;
  int64_t end;                // `eos`
  int64_t most;               // tokens of a translation, the end token included: `max_target_length` less those of `prefix`
  int64_t beams;              // 1 is greedy search
  double length_penalty;
  int shrinks, stops_early, counts_end;  // `beam_shrinks`, `early_stopping`, `length_includes_end`
} sentence_rules;

// Opens a model. The plan is a file of 64-bit floats. Returns null, and says why in `problem`, if that fails.
sentence_model* sentence_open(const char* weights, const char* plan, char* problem, size_t problem_size);
void sentence_close(sentence_model* model);

// Translates source ids, the end token included. Writes at most `most` target ids, without the end token, and the score.
// Returns their number; -1 if a token is out of range or there is not enough memory.
int64_t sentence_translate(const sentence_model* model, const sentence_rules* rules, const int64_t* source, int64_t count,
                           int64_t* target, double* score);

#ifdef __cplusplus
}
#endif
#endif
