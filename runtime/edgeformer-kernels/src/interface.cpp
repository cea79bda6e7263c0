// The C interface: checks arguments, and chooses the kernels.
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
  ~edgeformer_batch() {
    edgeformer::end(state);
    leave(model);
  }
};

namespace {

bool are_below(const int64_t* value, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; i++)
    if (value[i] < 0 || value[i] >= limit) return false;
  return true;
}

bool are_ascending(const int64_t* value, int64_t count, int64_t limit) {
  for (int64_t i = 1; i < count; i++)
    if (value[i] <= value[i - 1]) return false;
  return are_below(value, count, limit);
}

bool can_step(const State& state, const int64_t* token) {
  return state.position < state.model->target.positions && are_below(token, state.rows, state.model->target.rows);
}

}  // namespace

edgeformer_model* edgeformer_open(const void* weights, int64_t size, const double* plan, int64_t count, const char* level,
                                  char* problem, int64_t problem_size) {
  const edgeformer::Kernels* kernels = edgeformer::find_kernels(level);
  edgeformer_model* opened = edgeformer::create<edgeformer_model>();
  const char* found = edgeformer::kNoMemory;
  if (!kernels) {
    found = "the processor lacks the instructions";
  } else if (reinterpret_cast<uintptr_t>(weights) % edgeformer::kCacheLine) {
    found = "the weights are not aligned";
  } else if (opened) {
    opened->model.kernels = kernels;
    found = edgeformer::read_plan({static_cast<const uint8_t*>(weights), size}, plan, count, &opened->model);
  }
  if (!found) return opened;
  if (problem_size > 0) {
    std::strncpy(problem, found, static_cast<size_t>(problem_size - 1));
    problem[problem_size - 1] = 0;
  }
  edgeformer::destroy(opened);
  return nullptr;
}

void edgeformer_close(edgeformer_model* model) { leave(model); }

const char* edgeformer_levels(void) { return edgeformer::level_names(); }

edgeformer_batch* edgeformer_start(const edgeformer_model* model, const int64_t* token, const int64_t* length, int64_t sentences) {
  const Model& opened = model->model;
  int64_t tokens = 0;
  if (sentences < 1 || sentences > 1 << 20) return nullptr;
  for (int64_t n = 0; n < sentences; n++) {
    if (length[n] < 1 || length[n] > opened.source.positions) return nullptr;
    tokens += length[n];
  }
  if (!are_below(token, tokens, opened.source.rows)) return nullptr;
  edgeformer_batch* batch = edgeformer::create<edgeformer_batch>();
  if (batch && (batch->state = edgeformer::start(&opened, token, length, sentences))) {
    batch->model = model;
    edgeformer::add(&model->users, 1);
    return batch;
  }
  edgeformer::destroy(batch);
  return nullptr;
}

void edgeformer_end(edgeformer_batch* batch) { edgeformer::destroy(batch); }

int edgeformer_step(edgeformer_batch* batch, const int64_t* token, float* logits, int64_t room) {
  const State& state = *batch->state;
  const int64_t outputs = state.is_restricted ? batch->listed_count : state.model->target.rows;
  return room >= state.rows * outputs && can_step(state, token) && edgeformer::advance(batch->state, token, {logits, nullptr, nullptr});
}

int edgeformer_attend(edgeformer_batch* batch, const int64_t* token, float* weights, int64_t room) {
  const State& state = *batch->state;
  return room >= state.rows * edgeformer::longest_source(state) && can_step(state, token) &&
         edgeformer::advance(batch->state, token, {nullptr, nullptr, weights});
}

int edgeformer_select(edgeformer_batch* batch, const int64_t* row, int64_t count) {
  return count > 0 && count <= 1 << 20 && are_below(row, count, batch->state->rows) && edgeformer::select(batch->state, row, count);
}

int edgeformer_restrict(edgeformer_batch* batch, const int64_t* listed, int64_t count, const uint8_t* usable) {
  if (count < 1 || !are_ascending(listed, count, batch->state->model->target.rows)) return 0;
  if (!batch->listed.reserve(count) || !edgeformer::restrict(batch->state, listed, count, usable)) return 0;
  std::memcpy(batch->listed.data(), listed, count * sizeof(int64_t));
  batch->listed_count = count;
  return 1;
}

int64_t edgeformer_size(const edgeformer_batch* batch) { return batch->state->used + batch->state->scratch.capacity(); }

int edgeformer_search(edgeformer_batch* batch, const int64_t* begin, int64_t begin_count, const int64_t* most,
                      const double* initial, const edgeformer_options* given, int (*stopped)(int64_t sentence),
                      void (*ended)(int64_t sentence), const edgeformer_results* results) {
  State& state = *batch->state;
  const Model& model = *state.model;
  const int64_t outputs = state.is_restricted ? batch->listed_count : model.target.rows;
  if (state.position || begin_count < 1 || !are_below(begin, state.rows * begin_count, model.target.rows)) return 0;
  if (!are_ascending(given->suppressed, given->suppressed_count, outputs)) return 0;
  if (!are_ascending(given->forbidden, given->forbidden_count, outputs)) return 0;
  if (given->beams < 1 || given->beams > 1 << 10 || given->places < 1 || given->hypotheses < given->places) return 0;
  if (given->loop_repeats < 0 || given->loop_repeats == 1) return 0;
  if (given->loop_given < 0 || given->loop_given > begin_count) return 0;
  for (int64_t n = 0; n < state.rows; n++)
    if (most[n] < 1 || most[n] > results->room || most[n] + begin_count - 1 > model.target.positions) return 0;
  return static_cast<int>(
      edgeformer::search(&state, begin, begin_count, most, initial, *given, batch->listed.data(), stopped, ended, *results));
}
