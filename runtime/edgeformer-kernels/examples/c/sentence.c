#include "sentence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "edgeformer_kernels.h"

struct sentence_model {
  void* weights;
  size_t size;
  edgeformer_model* opened;
};

// Maps a file into memory, at the beginning of a page; null if it cannot be read or is empty.
static void* map_file(const char* path, size_t* size) {
  const int file = open(path, O_RDONLY);
  if (file < 0) return NULL;
  const off_t end = lseek(file, 0, SEEK_END);
  *size = end > 0 ? (size_t)end : 0;
  void* content = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);  // fails if there is nothing to map
  close(file);
  return content == MAP_FAILED ? NULL : content;
}

sentence_model* sentence_open(const char* weights, const char* plan, char* problem, size_t problem_size) {
  sentence_model* model = calloc(1, sizeof *model);
  size_t plan_size = 0;
  void* numbers = map_file(plan, &plan_size);
  snprintf(problem, problem_size, "a file cannot be read");
  if (model) model->weights = map_file(weights, &model->size);
  if (model && model->weights && numbers)
    model->opened = edgeformer_open(model->weights, (int64_t)model->size, numbers, (int64_t)(plan_size / sizeof(double)), NULL,
                                    problem, (int64_t)problem_size);
  if (numbers) munmap(numbers, plan_size);  // the model has what it needs of it
  if (model && model->opened) return model;
  sentence_close(model);
  return NULL;
}

void sentence_close(sentence_model* model) {
  if (!model) return;
  if (model->opened) edgeformer_close(model->opened);
  if (model->weights) munmap(model->weights, model->size);
  free(model);
}

int64_t sentence_translate(const sentence_model* model, const sentence_rules* rules, const int64_t* source, int64_t count,
                           int64_t* target, double* score) {
  const edgeformer_options options = {
      .beams = rules->beams,
      .hypotheses = rules->beams,
      .places = rules->beams,
      .shrinks = rules->beams > 1 && rules->shrinks,
      .stops_early = rules->beams == 1 || rules->stops_early,
      .counts_end = rules->counts_end,
      .follows_prefix = rules->begin_count > 1,
      .wants_scores = 1,
      .length_penalty = rules->length_penalty,
      .given_length = rules->begin_count - 1,
      .end = rules->end,
      .suppressed = rules->suppressed,
      .suppressed_count = rules->suppressed_count,
      .forbidden = rules->forbidden,
      .forbidden_count = rules->forbidden_count,
  };
  const size_t hypotheses = (size_t)rules->beams, tokens = hypotheses * (size_t)rules->most;
  int64_t* token = malloc(tokens * sizeof *token);
  double* logs = malloc(tokens * sizeof *logs);
  int64_t* counts = malloc(hypotheses * sizeof *counts);
  double* scores = malloc(hypotheses * sizeof *scores);
  uint8_t* finished = malloc(hypotheses);
  const edgeformer_results results = {rules->most, token, logs, counts, scores, finished};
  const double initial = 0;
  int64_t found = -1;
  edgeformer_batch* batch = edgeformer_start(model->opened, source, &count, 1, NULL, 0);
  if (batch && token && logs && counts && scores && finished &&
      edgeformer_search(batch, rules->begin, rules->begin_count, &rules->most, &initial, &options, NULL, NULL, NULL, &results) == 1) {
    found = counts[0] - finished[0];
    memcpy(target, token, (size_t)found * sizeof *target);
    *score = scores[0];
  }
  if (batch) edgeformer_end(batch);
  free(token), free(logs), free(counts), free(scores), free(finished);
  return found;
}
