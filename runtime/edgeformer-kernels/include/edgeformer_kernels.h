// The interface of the kernels. Numbers of a plan are doubles, which hold every offset and every single exactly.
//
// A model may be used by several threads at a time, a batch by one. Functions that can fail return 0 or a null pointer
// if there is not enough memory or an argument is out of range. `edgeformer_open` and `edgeformer_start` write why into
// `problem`, if `problem_size` is not 0; of the others, `edgeformer_problem` says why.
#ifndef EDGEFORMER_KERNELS_H
#define EDGEFORMER_KERNELS_H

#include <stdint.h>

#if defined(_WIN32)
#define EDGEFORMER_API __declspec(dllexport)
#else
#define EDGEFORMER_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Version of this interface. A library that returns another one was compiled with another header, and must not be used.
#define EDGEFORMER_VERSION 2
EDGEFORMER_API int64_t edgeformer_version(void);

typedef struct edgeformer_model edgeformer_model;
typedef struct edgeformer_batch edgeformer_batch;

// Opens a model.
//   weights: the bundle's weights, which have to stay in place, aligned to 64 bytes, until the model is closed.
//   plan:    the plan's numbers.
//   level:   name of an instruction set, such as "avx2"; null for the best that the processor has.
//   problem: gets what is wrong with the plan.
EDGEFORMER_API edgeformer_model* edgeformer_open(const void* weights, int64_t size, const double* plan, int64_t count,
                                                 const char* level, char* problem, int64_t problem_size);
// Frees a model, once its batches are ended.
EDGEFORMER_API void edgeformer_close(edgeformer_model* model);

// Names of the instruction sets that the processor has and this library was compiled for, best first, with spaces.
EDGEFORMER_API const char* edgeformer_levels(void);

// The most bytes that a batch takes until it ends, besides what an earlier batch left: of so many sentences, rows (sentences
// times beams), tokens of the longest source, and steps. Results of a search are included, one for each row. Infinite if there
// cannot be such a batch.
EDGEFORMER_API double edgeformer_batch_bytes(const edgeformer_model* model, int64_t sentences, int64_t rows, int64_t source,
                                             int64_t steps);

// Encodes sentences: their tokens one after the other, and how many each has.
EDGEFORMER_API edgeformer_batch* edgeformer_start(const edgeformer_model* model, const int64_t* token, const int64_t* length,
                                                  int64_t sentences, char* problem, int64_t problem_size);
EDGEFORMER_API void edgeformer_end(edgeformer_batch* batch);

// Why the last call for a batch failed; empty if it did not.
EDGEFORMER_API const char* edgeformer_problem(const edgeformer_batch* batch);

// Advances every row by one token, and writes logits (R, V), or (R, C) for C listed tokens, if there is room for as many.
EDGEFORMER_API int edgeformer_step(edgeformer_batch* batch, const int64_t* token, float* logits, int64_t room);

// The same, but writes what each row attends to: the weights of the last layer's cross-attention, averaged over its heads,
// (R, S) for a longest source of S tokens; zeros after the source of a row.
EDGEFORMER_API int edgeformer_attend(edgeformer_batch* batch, const int64_t* token, float* weights, int64_t room);

// Continues with other rows: for each, the row that it continues; those of a sentence beside each other.
EDGEFORMER_API int edgeformer_select(edgeformer_batch* batch, const int64_t* row, int64_t count);

// Restricts what follows to some tokens, in ascending order; `usable` says which of them each sentence may use, (N, C).
// The logits of others are negative infinity.
EDGEFORMER_API int edgeformer_restrict(edgeformer_batch* batch, const int64_t* listed, int64_t count, const uint8_t* usable);

// Bytes that the batch holds now, those that an earlier batch of the model left to it included.
EDGEFORMER_API int64_t edgeformer_size(const edgeformer_batch* batch);

// How to search; names and meanings are those of DecodeOptions in Python.
typedef struct {
  int64_t beams;           // 1 is greedy search
  int64_t hypotheses;      // to return for each sentence, at least `places`
  int64_t places;          // finished hypotheses at which a sentence ends
  int64_t shrinks, stops_early, counts_end;
  int64_t follows_prefix;  // whether an end in the first step counts only if it is the best extension
  int64_t wants_scores;    // greedy search is faster without scores
  double length_penalty;
  int64_t given_length;    // tokens before the search that count in the length
  int64_t end;             // the token that ends a target
  const int64_t* suppressed;  // tokens that do not exist, in ascending order
  int64_t suppressed_count;
  const int64_t* forbidden;   // tokens that are never generated, but have probabilities
  int64_t forbidden_count;
  int64_t loop_repeats;       // a hypothesis ends unfinished when it ends with the same n tokens so often in a row, n at
                              // most 8; 0 for never
  int64_t loop_given;         // tokens at the end of `begin` that count for this, too
} edgeformer_options;

// Hypotheses, best first; for N sentences and H hypotheses each:
typedef struct {
  int64_t room;                   // T
  int64_t* token;                 // (N, H, T), the end token included
  double* token_log_probability;  // (N, H, T)
  int64_t* count;                 // tokens, (N, H); -1 if there is no such hypothesis
  double* score;                  // (N, H)
  uint8_t* finished;              // whether it ended with the end token, (N, H)
} edgeformer_results;

// Searches to the end of every sentence.
//   begin:   tokens that the targets begin with, the start token first, (N, begin_count).
//   most:    tokens that each sentence may have after them, the end token included, (N,).
//   initial: log-probability of each sentence before the search, (N,).
//   begun:   called after the first step, unless null.
//   stopped: asked for each sentence after every step, unless null, whether to give it up.
//   ended:   told of each sentence whose hypotheses are complete, unless null, before those of others may be.
// Returns 2 if no token has a finite log-probability. Once its search has begun, a batch does nothing else.
EDGEFORMER_API int edgeformer_search(edgeformer_batch* batch, const int64_t* begin, int64_t begin_count, const int64_t* most,
                                     const double* initial, const edgeformer_options* options,
                                     void (*begun)(void), int (*stopped)(int64_t sentence), void (*ended)(int64_t sentence),
                                     const edgeformer_results* results);

#ifdef __cplusplus
}
#endif
#endif
