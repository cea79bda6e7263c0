#include "model.h"

namespace edgeformer {
namespace {

constexpr int64_t kFirstCapacity = 32;
constexpr int64_t kMostSpare = 64 << 20;  // bytes that are kept for the next batch

bool reserve_memories(State* state) {
  const Model& model = *state->model;
  int64_t room = 0;
  for (int64_t n = 0; n < state->sentences; n++) {
    state->first[n] = room;
    room += padded(state->length[n]);
  }
  const int64_t keys = room * model.heads * model.key_room(), values = room * model.heads * model.value_room();
  const int64_t cells = model.recurrent ? state->sentences * model.width : 0;
  state->used = model.decoder_layers * (keys + values + cells) * static_cast<int64_t>(sizeof(float));
  for (int64_t l = 0; l < model.decoder_layers; l++) {
    Cache& cache = state->caches[l];
    if (!cache.memory_key.reserve(keys) || !cache.memory_value.reserve(values)) return false;
    if (model.recurrent && !cache.cells.zeros(cells)) return false;
  }
  return true;
}

// Makes room for more steps.
bool grow(State* state, int64_t capacity) {
  Array<int32_t> owner;
  Array<Array<float>> past;
  if (!owner.reserve(state->rows * capacity) || !past.zeros(capacity)) return false;
  for (int64_t r = 0; r < state->rows && state->position; r++)
    std::memcpy(owner.data() + r * capacity, state->owner.data() + r * state->capacity, state->position * sizeof(int32_t));
  for (int64_t t = 0; t < state->position; t++) past[t].swap(state->past[t]);
  state->owner.swap(owner);
  state->past.swap(past);
  state->capacity = capacity;
  return true;
}

// Bytes that a state holds, whether its sentences need them or not.
int64_t held(const State& state) {
  int64_t values = 0;
  for (int64_t l = 0; l < state.model->decoder_layers; l++) {
    const Cache& cache = state.caches[l];
    values += cache.memory_key.capacity() + cache.memory_value.capacity() + cache.cells.capacity();
  }
  for (int64_t t = 0; t < state.capacity; t++) values += state.past[t].capacity();
  return values * static_cast<int64_t>(sizeof(float)) + state.scratch.capacity();
}

bool select_cells(State* state, const int64_t* rows, int64_t count) {
  const int64_t width = state->model->width;
  for (int64_t l = 0; l < state->model->decoder_layers; l++) {
    Array<float>& cells = state->caches[l].cells;
    // The two exchange their memory, and rows may become more.
    if (!state->spare_cells.reserve((count > state->rows ? count : state->rows) * width)) return false;
    for (int64_t i = 0; i < count; i++)
      std::memcpy(state->spare_cells.data() + i * width, cells.data() + rows[i] * width, width * sizeof(float));
    cells.swap(state->spare_cells);
  }
  return true;
}

}  // namespace

Model::~Model() {
  destroy(spare);
  destroy(encoder, encoder_layers);
  destroy(decoder, decoder_layers);
}

State* start(const Model* model, const int64_t* token, const int64_t* length, int64_t sentences) {
  State* state = exchange<State*>(&model->spare, nullptr);
  if (!state && !(state = create<State>())) return nullptr;
  state->model = model;
  state->sentences = state->rows = sentences;
  state->position = 0;
  state->is_restricted = false;
  bool fits = (state->caches || (state->caches = create<Cache>(model->decoder_layers))) && state->length.reserve(sentences) &&
              state->first.reserve(sentences) && state->sentence.reserve(sentences);
  for (int64_t n = 0; fits && n < sentences; n++) {
    state->length[n] = length[n];
    state->sentence[n] = static_cast<int32_t>(n);
  }
  fits = fits && reserve_memories(state);
  fits = fits && (state->capacity ? state->owner.reserve(sentences * state->capacity) : grow(state, kFirstCapacity));
  if (fits && model->kernels->encode(state, token)) return state;
  destroy(state);
  return nullptr;
}

void end(State* state) {
  if (state && held(*state) <= kMostSpare) state = exchange(&state->model->spare, state);
  destroy(state);
}

int64_t longest_source(const State& state) {
  int64_t longest = 0;
  for (int64_t n = 0; n < state.sentences; n++) longest = longest > state.length[n] ? longest : state.length[n];
  return longest;
}

bool advance(State* state, const int64_t* token, const Outputs& outputs) {
  const Model& model = *state->model;
  if (state->position == state->capacity && !grow(state, 2 * state->capacity)) return false;
  const int64_t past = state->rows * model.decoder_layers * model.past_width();
  if (!state->past[state->position].reserve(past)) return false;
  state->used += past * static_cast<int64_t>(sizeof(float));
  for (int64_t r = 0; r < state->rows; r++) state->owner[r * state->capacity + state->position] = static_cast<int32_t>(r);
  if (!model.kernels->step(state, token, outputs)) return false;
  state->position++;
  return true;
}

bool select(State* state, const int64_t* rows, int64_t count) {
  if (!state->spare_rows.reserve(count) || !state->spare_owner.reserve(count * state->capacity)) return false;
  if (state->model->recurrent && !select_cells(state, rows, count)) return false;
  for (int64_t i = 0; i < count; i++) {
    state->spare_rows[i] = state->sentence[rows[i]];
    std::memcpy(state->spare_owner.data() + i * state->capacity, state->owner.data() + rows[i] * state->capacity,
                state->position * sizeof(int32_t));
  }
  state->sentence.swap(state->spare_rows);
  state->owner.swap(state->spare_owner);
  state->rows = count;
  return true;
}

bool restrict(State* state, const int64_t* listed, int64_t count, const uint8_t* usable) {
  if (!pack(*state->model->kernels, &state->model->stored_projection, 1, listed, count, &state->listed)) return false;
  const int64_t stride = state->listed.panels() * kPanel;
  if (!state->usable.zeros(state->sentences * stride)) return false;
  for (int64_t n = 0; n < state->sentences; n++) std::memcpy(state->usable.data() + n * stride, usable + n * count, count);
  return state->is_restricted = true;
}

}  // namespace edgeformer
