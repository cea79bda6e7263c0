// The C interface: checks arguments, and chooses the kernels.
#include <cmath>

#include "model.h"

using edgeformer::Array;
using edgeformer::Model;
using edgeformer::State;

struct edgeformer_model {
  Model model;
  mutable int64_t users = 1;  // its batches, and whoever opened it
};

namespace {

void leave(const edgeformer_model* model) {
  if (model && !edgeformer::add(&model->users, -1)) edgeformer::destroy(const_cast<edgeformer_model*>(model));
}

}  // namespace

struct edgeformer_batch {
  const edgeformer_model* model = nullptr;
  State* state = nullptr;
  Array<int64_t> listed;
  int64_t listed_count = 0;
  bool is_searched = false;  // then, only the search knows its rows, even while it calls back
  const char* problem = "";  // why the last call failed
  ~edgeformer_batch() {
    edgeformer::end(state);
    leave(model);
  }
};

namespace {

constexpr int64_t kMostSentences = 1 << 20, kMostBeams = 1 << 10, kMostTokens = 1 << 24;

void write(const char* text, char* out, int64_t size) {
  if (size < 1) return;
  std::strncpy(out, text, static_cast<size_t>(size - 1));
  out[size - 1] = 0;
}

bool are_below(const int64_t* value, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; i++)
    if (value[i] < 0 || value[i] >= limit) return false;
  return true;
}

bool is_between(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

bool are_ascending(const int64_t* value, int64_t count, int64_t limit) {
  if (!is_between(count, 0, limit)) return false;
  for (int64_t i = 1; i < count; i++)
    if (value[i] <= value[i - 1]) return false;
  return are_below(value, count, limit);
}

int64_t outputs(const edgeformer_batch& batch) {
  return batch.state->is_restricted ? batch.listed_count : batch.state->model->target.rows;
}

// What is wrong with a step that writes so many numbers for each row; null if nothing is.
const char* step_problem(const edgeformer_batch& batch, const int64_t* token, int64_t numbers, int64_t room) {
  const State& state = *batch.state;
  if (state.position >= state.model->target.positions) return "all steps of the model are made";
  if (room < state.rows * numbers) return "there is no room for the results";
  return are_below(token, state.rows, state.model->target.rows) ? nullptr : "a token is out of range";
}

// What is wrong with a search; null if nothing is.
const char* search_problem(const edgeformer_batch& batch, const int64_t* begin, int64_t begin_count, const int64_t* most,
                           const edgeformer_options& given, const edgeformer_results& results) {
  const State& state = *batch.state;
  const int64_t positions = state.model->target.positions;
  if (state.position) return "the batch has made steps already";
  if (!is_between(begin_count, 1, positions)) return "there are no tokens to begin with, or too many";
  if (!are_below(begin, state.rows * begin_count, state.model->target.rows)) return "a token is out of range";
  if (!are_ascending(given.suppressed, given.suppressed_count, outputs(batch)) ||
      !are_ascending(given.forbidden, given.forbidden_count, outputs(batch)))
    return "suppressed or forbidden tokens are out of range or not in ascending order";
  if (!is_between(given.beams, 1, kMostBeams) || given.places < 1 || !is_between(given.hypotheses, given.places, kMostSentences))
    return "the number of beams or hypotheses is out of range";
  if (!std::isfinite(given.length_penalty) || !is_between(given.given_length, 0, kMostTokens)) return "the length or its penalty is out of range";
  if (given.loop_repeats < 0 || given.loop_repeats == 1 || !is_between(given.loop_given, 0, begin_count)) return "the repeats are out of range";
  for (int64_t n = 0; n < state.rows; n++)
    if (!is_between(most[n], 1, positions - begin_count + 1) || most[n] > results.room) return "a length is out of range";
  return results.room > kMostTokens ? "there is too much room for the results" : nullptr;
}

// Works if nothing is wrong, and notes what is if something is. Returns whether all went well.
template <class Check, class Work>
int run(edgeformer_batch* batch, Check check, Work work) {
  const char* problem = batch->is_searched ? "the batch was searched" : check();
  if (!problem && !work()) problem = edgeformer::kNoMemory;
  batch->problem = problem ? problem : "";
  return !problem;
}

}  // namespace

edgeformer_model* edgeformer_open(const void* weights, int64_t size, const double* plan, int64_t count, const char* level,
                                  char* problem, int64_t problem_size) {
  const edgeformer::Kernels* kernels = edgeformer::find_kernels(level);
  edgeformer_model* opened = edgeformer::create<edgeformer_model>();
  const char* found = edgeformer::kNoMemory;
  if (!kernels) {
    found = "the processor lacks the instructions";
  } else if (reinterpret_cast<uintptr_t>(weights) % edgeformer::kCacheLine || size < 0 || count < 0) {
    found = "the weights are not aligned, or a size is negative";
  } else if (opened) {
    opened->model.kernels = kernels;
    found = edgeformer::read_plan({static_cast<const uint8_t*>(weights), size}, plan, count, &opened->model);
  }
  if (!found) return opened;
  write(found, problem, problem_size);
  edgeformer::destroy(opened);
  return nullptr;
}

void edgeformer_close(edgeformer_model* model) { leave(model); }

int64_t edgeformer_version(void) { return EDGEFORMER_VERSION; }

const char* edgeformer_levels(void) { return edgeformer::level_names(); }

double edgeformer_batch_bytes(const edgeformer_model* model, int64_t sentences, int64_t rows, int64_t source, int64_t steps) {
  const Model& opened = model->model;
  const bool is_valid = is_between(sentences, 1, kMostSentences) && is_between(rows, sentences, kMostSentences * kMostBeams) &&
                        is_between(source, 1, opened.source.positions) && is_between(steps, 0, opened.target.positions);
  return is_valid ? edgeformer::batch_bytes(opened, sentences, rows, source, steps) : INFINITY;
}

edgeformer_batch* edgeformer_start(const edgeformer_model* model, const int64_t* token, const int64_t* length, int64_t sentences,
                                   char* problem, int64_t problem_size) {
  const Model& opened = model->model;
  const char* found = is_between(sentences, 1, kMostSentences) ? nullptr : "there are no sentences, or too many";
  int64_t tokens = 0;
  for (int64_t n = 0; n < sentences && !found; n++) {
    if (!is_between(length[n], 1, opened.source.positions)) found = "the length of a source is out of range";
    tokens += length[n];
  }
  if (!found && !are_below(token, tokens, opened.source.rows)) found = "a token is out of range";
  edgeformer_batch* batch = found ? nullptr : edgeformer::create<edgeformer_batch>();
  if (batch && (batch->state = edgeformer::start(&opened, token, length, sentences))) {
    batch->model = model;
    edgeformer::add(&model->users, 1);
    return batch;
  }
  write(found ? found : edgeformer::kNoMemory, problem, problem_size);
  edgeformer::destroy(batch);
  return nullptr;
}

void edgeformer_end(edgeformer_batch* batch) { edgeformer::destroy(batch); }

const char* edgeformer_problem(const edgeformer_batch* batch) { return batch->problem; }

int edgeformer_step(edgeformer_batch* batch, const int64_t* token, float* logits, int64_t room) {
  return run(batch, [&] { return step_problem(*batch, token, outputs(*batch), room); },
             [&] { return edgeformer::advance(batch->state, token, {logits, nullptr, nullptr}); });
}

int edgeformer_attend(edgeformer_batch* batch, const int64_t* token, float* weights, int64_t room) {
  return run(batch, [&] { return step_problem(*batch, token, edgeformer::longest_source(*batch->state), room); },
             [&] { return edgeformer::advance(batch->state, token, {nullptr, nullptr, weights}); });
}

int edgeformer_select(edgeformer_batch* batch, const int64_t* row, int64_t count) {
  const auto check = [&] {
    return is_between(count, 1, kMostSentences) && are_below(row, count, batch->state->rows) ? nullptr : "a row is out of range";
  };
  return run(batch, check, [&] { return edgeformer::select(batch->state, row, count); });
}

int edgeformer_restrict(edgeformer_batch* batch, const int64_t* listed, int64_t count, const uint8_t* usable) {
  const auto check = [&] {
    const bool is_valid = count > 0 && are_ascending(listed, count, batch->state->model->target.rows);
    return is_valid ? nullptr : "listed tokens are out of range or not in ascending order";
  };
  return run(batch, check, [&] {
    if (!edgeformer::set_shortlist(batch->state, listed, count, usable) || !batch->listed.reserve(count)) return false;
    std::memcpy(batch->listed.data(), listed, count * sizeof(int64_t));
    batch->listed_count = count;
    return batch->state->is_restricted = true;
  });
}

int64_t edgeformer_size(const edgeformer_batch* batch) { return edgeformer::held(*batch->state) + batch->listed.bytes(); }

int edgeformer_search(edgeformer_batch* batch, const int64_t* begin, int64_t begin_count, const int64_t* most,
                      const double* initial, const edgeformer_options* given, void (*begun)(void), int (*stopped)(int64_t sentence),
                      void (*ended)(int64_t sentence), const edgeformer_results* results) {
  edgeformer::Outcome outcome = edgeformer::Outcome::kFailed;
  run(batch, [&] { return search_problem(*batch, begin, begin_count, most, *given, *results); }, [&] {
    batch->is_searched = true;
    outcome = edgeformer::search(batch->state, begin, begin_count, most, initial, *given, batch->listed.data(), begun, stopped, ended, *results);
    return outcome != edgeformer::Outcome::kFailed;
  });
  return static_cast<int>(outcome);
}
