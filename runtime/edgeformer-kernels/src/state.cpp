#include "model.h"

#include <algorithm>

namespace edgeformer {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kFirstCapacity = 32;
constexpr int64_t kMostSpare = 64 << 20, kSpareCapacity = 256;  // bytes, and room for steps, that are kept for the next batch

bool reserve_memories(State* state) {
  const Model& model = *state->model;
  int64_t room = 0;
  for (int64_t n = 0; n < state->sentences; n++) {
    state->first[n] = room;
    room += padded(state->length[n]);
  }
  const int64_t keys = room * model.heads * model.key_room(), values = room * model.heads * model.value_room();
  const int64_t cells = model.recurrent ? state->sentences * model.width : 0;
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

// Scratch memory of the stream between sublayers: see `make_stream` in network.h.
int64_t stream_bytes(const Model& model, int64_t rows) {
  const int64_t input = 4 / model.kernels->group;  // bytes of an integer
  return rows * ((2 * model.width + widest(model)) * kFloat + widest(model) * input) + 4 * static_cast<int64_t>(kCacheLine);
}

// The same of encoding so many tokens, the longest sentence first, as many at a time as the kernels take.
int64_t encode_bytes(const Model& model, int64_t tokens, int64_t longest) {
  const int64_t together = std::min(tokens, std::max(kRowsTogether, longest)), room = padded(longest);
  const int64_t heads = model.heads * ((model.key_room() + model.value_room()) * room + model.value_room());
  return stream_bytes(model, together) + (heads + room + 8 * kLanes) * kFloat;
}

// The same of a step, in which a row attends to at most so many tokens.
int64_t step_bytes(const Model& model, int64_t rows, int64_t longest) {
  const int64_t together = std::min(rows, kRowsTogether);
  return stream_bytes(model, together) + (padded(longest) + model.heads * model.value_room() + together * (1 + kLanes) + 8 * kLanes) * kFloat;
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
  int64_t tokens = 0;
  for (int64_t n = 0; fits && n < sentences; n++) {
    tokens += state->length[n] = length[n];
    state->sentence[n] = static_cast<int32_t>(n);
  }
  fits = fits && reserve_memories(state);
  fits = fits && (state->capacity ? state->owner.reserve(sentences * state->capacity) : grow(state, kFirstCapacity));
  if (!fits || !state->scratch.reserve(encode_bytes(*model, tokens, longest_source(*state)))) {
    destroy(state);
    return nullptr;
  }
  model->kernels->encode(state, token);
  return state;
}

void end(State* state) {
  if (state && state->capacity <= kSpareCapacity && held(*state) <= kMostSpare) state = exchange(&state->model->spare, state);
  destroy(state);
}

int64_t held(const State& state) {
  int64_t bytes = state.length.bytes() + state.first.bytes() + state.sentence.bytes() + state.past.bytes() + state.owner.bytes() +
                  state.usable.bytes() + state.scratch.bytes() + state.spare_rows.bytes() + state.spare_owner.bytes() +
                  state.spare_cells.bytes();
  for (int64_t l = 0; state.caches && l < state.model->decoder_layers; l++) {
    const Cache& cache = state.caches[l];
    bytes += cache.memory_key.bytes() + cache.memory_value.bytes() + cache.cells.bytes();
  }
  for (int64_t t = 0; t < state.capacity; t++) bytes += state.past[t].bytes();
  const Linear& listed = state.listed;
  return bytes + listed.weight.bytes() + listed.scale.bytes() + listed.correction.bytes() + listed.bias.bytes();
}

double batch_bytes(const Model& model, int64_t sentences, int64_t rows, int64_t source, int64_t steps) {
  const double n = static_cast<double>(sentences), r = static_cast<double>(rows), layers = static_cast<double>(model.decoder_layers);
  const double capacity = static_cast<double>(std::max(kSpareCapacity, 2 * steps)), made = static_cast<double>(steps);
  const double memory = n * layers * static_cast<double>(padded(source) * model.heads * (model.key_room() + model.value_room()) * kFloat);
  const double past = r * made * layers * static_cast<double>(model.past_width() * kFloat);
  const double cells = model.recurrent ? (layers + 1) * r * static_cast<double>(model.width * kFloat) : 0;
  // Owners, those of the next step, and those before there was room for as many steps.
  const double tables = 3 * capacity * (r * sizeof(int32_t) + sizeof(Array<float>)) + n * 32;
  const double scratch = static_cast<double>(std::max(encode_bytes(model, std::max(kRowsTogether, source), source),
                                                      step_bytes(model, rows, std::max(source, steps))));
  const int64_t vocabulary = padded(model.target.rows) + kPanel;
  const double listed = static_cast<double>(packed_bytes(model.width, vocabulary)) + static_cast<double>(vocabulary) * (n + 8);
  // What search.cpp has for every row and step, and the results; then for every row and each of its best extensions.
  const double search = r * made * 40 + r * (96 + 24 * r / n);
  const double arrays = (4 * layers + capacity + 32) * 3 * static_cast<double>(kCacheLine);  // what each takes besides
  return memory + past + cells + tables + scratch + listed + search + arrays;
}

int64_t widest(const Model& model) {
  const int64_t heads = model.heads * (2 * model.key_room() + model.value_room());
  const int64_t inner = std::max(model.encoder_inner, model.decoder_inner) * (1 + model.gated);
  return std::max({heads, inner, 2 * model.width});
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
  const int64_t longest = std::max(longest_source(*state), state->position + 1);
  if (!state->past[state->position].reserve(past) || !state->scratch.reserve(step_bytes(model, state->rows, longest))) return false;
  for (int64_t r = 0; r < state->rows; r++) state->owner[r * state->capacity + state->position] = static_cast<int32_t>(r);
  model.kernels->step(state, token, outputs);
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

bool set_shortlist(State* state, const int64_t* listed, int64_t count, const uint8_t* usable) {
  state->is_restricted = false;  // until what is listed is complete
  if (!pack(*state->model->kernels, &state->model->stored_projection, 1, listed, count, &state->listed)) return false;
  const int64_t stride = state->listed.panels() * kPanel;
  if (!state->usable.zeros(state->sentences * stride)) return false;
  for (int64_t n = 0; n < state->sentences; n++) std::memcpy(state->usable.data() + n * stride, usable + n * count, count);
  return true;
}

}  // namespace edgeformer
