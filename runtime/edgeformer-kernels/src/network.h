// The encoder and one step of the decoder, row by row: no result depends on the other rows of a batch.
#pragma once

#include "model.h"
#include "product.h"
#include "vectors.h"

namespace edgeformer {
namespace EDGEFORMER_LEVEL {

constexpr float kLowest = -1e30f;  // below every score that counts, and finite: differences from it are numbers

// Parts of the state's scratch memory, handed out one after the other.
class Scratch {
 public:
  explicit Scratch(State* state) : next_(state->scratch.data()) {}
  template <class T>
  T* take(int64_t count) {
    T* part = reinterpret_cast<T*>(next_);
    next_ += (count * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    return part;
  }

 private:
  uint8_t* next_;
};

inline void normalize(const Model& model, const Norm& norm, const float* x, float* out) {
  const int64_t width = model.width;
  Floats total{}, squares{};
  if (model.norm_centers) {
    for (int64_t i = 0; i < width; i += kLanes) total += load(x + i);
  }
  const Floats mean = all(sum(total) / static_cast<float>(width));
  for (int64_t i = 0; i < width; i += kLanes) {
    const Floats centered = load(x + i) - mean;
    store(out + i, centered);
    squares += centered * centered;
  }
  const Floats deviation = all(__builtin_sqrtf(sum(squares) / static_cast<float>(width) + model.epsilon));
  for (int64_t i = 0; i < width; i += kLanes) {
    Floats value = load(out + i) / deviation * load(norm.weight + i);
    if (norm.bias) value += load(norm.bias + i);
    store(out + i, value);
  }
}

EDGEFORMER_INLINE Floats activated(Activation activation, Floats x) {
  switch (activation) {
    case Activation::kRelu: return larger(x, Floats{});
    case Activation::kGelu: return all(0.5f) * x * (all(1.0f) + error_function(x * all(0.70710678f)));
    case Activation::kGeluTanh:
      return all(0.5f) * x * (all(1.0f) + hyperbolic_tangent(all(0.79788456f) * (x + all(0.044715f) * x * x * x)));
    case Activation::kGeluSigmoid: return x * sigmoid(all(1.702f) * x);
    default: return x * sigmoid(x);
  }
}

// Turns scores into weights that add up to the result, in place; there is room up to a whole vector.
inline float softmax(float* score, int64_t count) {
  const int64_t room = padded(count);
  for (int64_t t = count; t < room; t++) score[t] = kLowest;
  Floats most = load(score), total{};
  for (int64_t t = kLanes; t < room; t += kLanes) most = larger(most, load(score + t));
  const Floats highest = all(largest(most));
  for (int64_t t = 0; t < room; t += kLanes) {
    const Floats weight = exponential(load(score + t) - highest);
    store(score + t, weight);
    total += weight;
  }
  return sum(total);
}

// What one head of one row attends to in a sentence. Returns the factor that makes the sum of `weights` one.
//
// Keys are transposed, so that the scores of 16 positions are computed together without adding up across a vector. Four
// partial sums each, because an addition waits for the one before.
inline float attend_memory(const float* query, const Model& model, const float* keys, const float* values, int64_t count,
                           float scale, float* weights, float* out) {
  const int64_t room = padded(count), key_room = model.key_room(), value_room = model.value_room();
  for (int64_t t = 0; t < room; t += kLanes) {
    Floats part[4] = {};
    for (int64_t i = 0; i < key_room; i += 4)
      for (int j = 0; j < 4; j++) part[j] += all(query[i + j]) * load(keys + (i + j) * room + t);
    store(weights + t, ((part[0] + part[1]) + (part[2] + part[3])) * all(scale));
  }
  const float factor = 1.0f / softmax(weights, count);
  const Floats inverse = all(factor);
  for (int64_t i = 0; i < value_room; i += kLanes) {
    Floats even{}, odd{};
    int64_t t = 0;
    for (; t + 2 <= count; t += 2) {
      even += all(weights[t]) * load(values + t * value_room + i);
      odd += all(weights[t + 1]) * load(values + (t + 1) * value_room + i);
    }
    if (t < count) even += all(weights[t]) * load(values + t * value_room + i);
    store(out + i, (even + odd) * inverse);
  }
  return factor;
}

// The same for the row's own past: the keys and values that `owner` wrote in each step, at some places of its numbers.
inline void attend_past(const float* query, const State& state, const int32_t* owner, int64_t key_place, int64_t value_place,
                        float* weights, float* out) {
  const Model& model = *state.model;
  const int64_t key_room = model.key_room(), value_room = model.value_room(), count = state.position + 1;
  const int64_t row = model.decoder_layers * model.past_width();
  for (int64_t t = 0; t < count; t++) {
    const float* key = state.past[t].data() + owner[t] * row + key_place;
    Floats products{};
    for (int64_t i = 0; i < key_room; i += kLanes) products += load(query + i) * load(key + i);
    weights[t] = sum(products) * model.decoder_scale;
  }
  const Floats inverse = all(1.0f / softmax(weights, count));
  for (int64_t i = 0; i < value_room; i += kLanes) {
    Floats total{};
    for (int64_t t = 0; t < count; t++) total += all(weights[t]) * load(state.past[t].data() + owner[t] * row + value_place + i);
    store(out + i, total * inverse);
  }
}

// Rows of the stream between sublayers, (rows, D), and what a sublayer computes from them.
struct Stream {
  const Model& model;
  int64_t rows;
  float *x, *normed, *wide;  // (rows, D), (rows, D), (rows, widest)
  Input* integers;           // (rows, widest)

  // The products of a sublayer's input, (rows, outputs) in `wide`. With pre-norm, the input is a normalized copy of the
  // stream; with post-norm, the stream is normalized already.
  void projected(const Norm& norm, const Projection& projection) {
    const float* input = x;
    if (model.norm_first && norm.weight) {
      for (int64_t r = 0; r < rows; r++) normalize(model, norm, x + r * model.width, normed + r * model.width);
      input = normed;
    }
    float* out = wide;
    for (int p = 0; p < projection.parts; p++) {
      const Linear& linear = projection.part[p];
      for (int64_t r = 0; r < rows; r++) quantize(input + r * model.width, model.width, linear, integers + r * linear.inputs);
      product(integers, rows, linear, {out, projection.outputs, nullptr});
      out += linear.outputs;
    }
  }

  // Adds the output of a sublayer; with post-norm, normalizes the sum.
  void added(const Norm& norm, const Linear& linear) {
    product(integers, rows, linear, {x, model.width, x});
    if (!model.norm_first) normalized(norm);
  }

  void normalized(const Norm& norm) {
    if (!norm.weight) return;
    for (int64_t r = 0; r < rows; r++) {
      float* row = x + r * model.width;
      normalize(model, norm, row, row);
    }
  }

  void feed_forward(const FeedForward& layer) {
    projected(layer.norm, layer.inner);
    const int64_t inner = layer.outer.inputs, stride = layer.inner.outputs;
    for (int64_t r = 0; r < rows; r++) {
      float* row = wide + r * stride;
      for (int64_t i = 0; i < inner; i += kLanes) {
        Floats value = activated(model.activation, load(row + i));
        if (model.gated) value *= load(row + inner + i);
        store(row + i, value);
      }
      quantize(row, inner, layer.outer, integers + r * inner);
    }
    added(layer.norm, layer.outer);
  }

  void embedded(const Embedding& embedding, int64_t row, int64_t token, int64_t position) {
    float* out = x + row * model.width;
    const int8_t* integer = embedding.table + token * model.width;
    const Floats scale = all(embedding.scale[token]);
    for (int64_t i = 0; i < model.width; i += kLanes) {
      typedef int8_t Narrow __attribute__((vector_size(kLanes), aligned(1), may_alias));
      Floats value = __builtin_convertvector(*reinterpret_cast<const Narrow*>(integer + i), Floats) * scale;
      if (embedding.position) value += load(embedding.position + position * model.width + i);
      store(out + i, value);
    }
    if (!embedding.norm.weight) return;
    normalize(model, embedding.norm, out, out);
  }
};

inline Stream make_stream(const Model& model, int64_t rows, Scratch& scratch) {
  const int64_t wide = widest(model);
  float* x = scratch.take<float>(rows * model.width);
  float* normed = scratch.take<float>(rows * model.width);
  float* values = scratch.take<float>(rows * wide);
  return {model, rows, x, normed, values, scratch.take<Input>(rows * wide)};
}

// Divides projected keys and values of a sentence into heads: keys (H, E, S'), values (H, S', F).
inline void divide_heads(const Model& model, const float* projected, int64_t stride, int64_t count, float* keys, float* values) {
  const int64_t room = padded(count), key_room = model.key_room(), value_room = model.value_room();
  const float* projected_values = projected + model.heads * key_room;
  for (int64_t i = 0; i < model.heads * key_room; i++) {
    for (int64_t t = 0; t < count; t++) keys[i * room + t] = projected[t * stride + i];
    for (int64_t t = count; t < room; t++) keys[i * room + t] = 0;
  }
  for (int64_t h = 0; h < model.heads; h++)
    for (int64_t t = 0; t < count; t++)
      std::memcpy(values + (h * room + t) * value_room, projected_values + t * stride + h * value_room, value_room * sizeof(float));
}

// Encodes the sentences from `begin` to `end`, which have some tokens, and projects keys and values for every decoder layer.
inline void encode_some(State* state, const int64_t* token, int64_t begin, int64_t end, int64_t tokens) {
  const Model& model = *state->model;
  int64_t longest = 0;
  for (int64_t n = begin; n < end; n++) longest = longest > state->length[n] ? longest : state->length[n];
  const int64_t room = padded(longest), key_room = model.key_room(), value_room = model.value_room();
  const int64_t head_keys = model.heads * key_room * room, head_values = model.heads * value_room * room;
  Scratch scratch(state);
  Stream stream = make_stream(model, tokens, scratch);
  float* keys = scratch.take<float>(head_keys);
  float* values = scratch.take<float>(head_values);
  float* weights = scratch.take<float>(room);
  float* context = scratch.take<float>(model.heads * value_room);
  for (int64_t n = begin, r = 0; n < end; n++)
    for (int64_t t = 0; t < state->length[n]; t++, r++) stream.embedded(model.source, r, token[r], t);
  for (int64_t l = 0; l < model.encoder_layers; l++) {
    const EncoderLayer& layer = model.encoder[l];
    stream.projected(layer.norm, layer.query_key_value);
    const int64_t stride = layer.query_key_value.outputs, queries = model.heads * key_room;
    for (int64_t n = begin, r = 0; n < end; n++) {
      const int64_t count = state->length[n], own_room = padded(count);
      divide_heads(model, stream.wide + r * stride + queries, stride, count, keys, values);
      for (int64_t t = 0; t < count; t++, r++) {
        for (int64_t h = 0; h < model.heads; h++)
          attend_memory(stream.wide + r * stride + h * key_room, model, keys + h * key_room * own_room,
                        values + h * own_room * value_room, count, model.encoder_scale, weights, context + h * value_room);
        quantize(context, layer.output.inputs, layer.output, stream.integers + r * layer.output.inputs);
      }
    }
    stream.added(layer.norm, layer.output);
    stream.feed_forward(layer.feed_forward);
  }
  stream.normalized(model.encoder_norm);
  for (int64_t l = 0; l < model.decoder_layers; l++) {
    const Projection& memory = model.decoder[l].memory;
    stream.projected({}, memory);
    Cache& cache = state->caches[l];
    for (int64_t n = begin, r = 0; n < end; r += state->length[n++])
      divide_heads(model, stream.wide + r * memory.outputs, memory.outputs, state->length[n],
                   cache.memory_key.data() + state->first[n] * model.heads * key_room,
                   cache.memory_value.data() + state->first[n] * model.heads * value_room);
  }
}

// Encodes all sentences, one after the other without padding, as many at a time as stay in the cache.
inline void encode(State* state, const int64_t* token) {
  for (int64_t begin = 0, end; begin < state->sentences; begin = end) {
    int64_t tokens = 0;
    for (end = begin; end < state->sentences && (end == begin || tokens + state->length[end] <= kRowsTogether); end++)
      tokens += state->length[end];
    encode_some(state, token, begin, end, tokens);
    token += tokens;
  }
}

// Self-attention of every row over its past and itself.
inline void attend_to_past(State* state, int64_t layer_index, const DecoderLayer& layer, Stream& stream, int64_t first,
                           float* weights, float* context) {
  const Model& model = *state->model;
  const int64_t keys = model.heads * model.key_room(), values = model.heads * model.value_room(), position = state->position;
  const int64_t width = model.past_width(), place = layer_index * width;
  for (int64_t r = 0; r < stream.rows; r++) {
    const float* query = stream.wide + r * layer.target.outputs;  // then keys and values
    float* own = state->past[position].data() + (first + r) * model.decoder_layers * width + place;
    std::memcpy(own, query + keys, width * sizeof(float));
    const int32_t* owner = state->owner.data() + (first + r) * state->capacity;
    for (int64_t h = 0; h < model.heads; h++)
      attend_past(query + h * model.key_room(), *state, owner, place + h * model.key_room(), place + keys + h * model.value_room(),
                  weights, context + h * model.value_room());
    quantize(context, values, layer.output, stream.integers + r * values);
  }
  stream.added(layer.norm, layer.output);
}

// The cell of an SSRU: c = f c + (1 - f) w, written with one product fewer; its output is max(c, 0).
inline void advance_cells(Cache& cache, const DecoderLayer& layer, Stream& stream, int64_t first) {
  const int64_t width = stream.model.width;
  for (int64_t r = 0; r < stream.rows; r++) {
    const float* projected = stream.wide + r * 2 * width;
    for (int64_t i = 0; i < width; i += kLanes) {
      const Floats candidate = load(projected + i), forget = sigmoid(load(projected + width + i));
      float* cell = cache.cells.data() + (first + r) * width + i;
      const Floats value = candidate + forget * (load(cell) - candidate);
      store(cell, value);
      store(stream.x + r * width + i, load(stream.x + r * width + i) + larger(value, Floats{}));
    }
  }
  if (!stream.model.norm_first) stream.normalized(layer.norm);
}

// `attention`, if it is wanted, gets the mean of the heads' weights, (rows, S).
inline void attend_to_memory(State* state, const Cache& cache, const DecoderLayer& layer, Stream& stream, int64_t first,
                             float* weights, float* context, float* attention) {
  const Model& model = *state->model;
  const int64_t key_room = model.key_room(), value_room = model.value_room(), longest = attention ? longest_source(*state) : 0;
  if (attention) std::memset(attention, 0, stream.rows * longest * sizeof(float));
  for (int64_t r = 0; r < stream.rows; r++) {
    const int64_t n = state->sentence[first + r], count = state->length[n], room = padded(count);
    const float* keys = cache.memory_key.data() + state->first[n] * model.heads * key_room;
    const float* values = cache.memory_value.data() + state->first[n] * model.heads * value_room;
    for (int64_t h = 0; h < model.heads; h++) {
      const float factor =
          attend_memory(stream.wide + r * layer.cross_query.outputs + h * key_room, model, keys + h * key_room * room,
                        values + h * room * value_room, count, model.cross_scale, weights, context + h * value_room);
      for (int64_t t = 0; attention && t < count; t++)
        attention[r * longest + t] += weights[t] * factor / static_cast<float>(model.heads);
    }
    quantize(context, layer.cross_output.inputs, layer.cross_output, stream.integers + r * layer.cross_output.inputs);
  }
  stream.added(layer.cross_norm, layer.cross_output);
}

// Adds the outputs of a panel to the best of a row, which are in descending order; of equal ones, the first stays.
inline void add_best(const float* value, int64_t begin, const Best& best, int64_t row) {
  float* kept = best.value + row * best.count;
  int64_t* output = best.output + row * best.count;
  for (int64_t i = 0; i < kPanel; i++) {
    if (!(value[i] > kept[best.count - 1])) continue;
    int64_t place = best.count - 1;
    for (; place > 0 && value[i] > kept[place - 1]; place--) {
      kept[place] = kept[place - 1];
      output[place] = output[place - 1];
    }
    kept[place] = value[i];
    output[place] = begin + i;
  }
}

// Makes outputs that a sentence may not use impossible.
inline void leave_out(float* value, const uint8_t* usable, int64_t count) {
  for (int64_t i = 0; i < count; i++) value[i] = usable[i] ? value[i] : -INFINITY;
}

// The largest outputs of each row, and the logarithm of the sum of their exponentials, without writing outputs down.
//
// Exponentials are taken of the differences from the largest output so far. Where a larger one comes, what has been
// added up is scaled to it.
inline void best_outputs(const Input* x, int64_t rows, const Linear& linear, const Best& best) {
  float *peak = best.peak, *sums = best.sums;
  for (int64_t i = 0; i < rows * best.count; i++) best.value[i] = -INFINITY, best.output[i] = 0;
  for (int64_t r = 0; r < rows; r++) peak[r] = kLowest;
  std::memset(sums, 0, rows * kLanes * sizeof(float));
  const int64_t *suppressed = best.suppressed, *forbidden = best.forbidden;
  for (int64_t panel = 0; panel < linear.panels(); panel++) {
    const int64_t begin = panel * kPanel, count = linear.outputs - begin < kPanel ? linear.outputs - begin : kPanel;
    const int64_t *last_suppressed = suppressed, *last_forbidden = forbidden;
    while (last_suppressed < best.suppressed + best.suppressed_count && *last_suppressed < begin + count) last_suppressed++;
    while (last_forbidden < best.forbidden + best.forbidden_count && *last_forbidden < begin + count) last_forbidden++;
    for (int64_t first = 0; first < rows; first += kRows) {
      float values[kRows * kPanel];
      const int64_t now = rows - first < kRows ? rows - first : kRows;
      panel_product(x + first * linear.inputs, now, linear, panel, {values, kPanel, nullptr});
      for (int64_t r = first; r < first + now; r++) {
        float* value = values + (r - first) * kPanel;
        for (int64_t i = count; i < kPanel; i++) value[i] = -INFINITY;
        for (const int64_t* output = suppressed; output < last_suppressed; output++) value[*output - begin] = -INFINITY;
        if (best.usable) leave_out(value, best.usable + best.sentence[r] * linear.panels() * kPanel + begin, kPanel);
        const Floats most = larger(larger(load(value), load(value + 16)), larger(load(value + 32), load(value + 48)));
        const float highest = largest(most);
        if (best.log_sum) {
          if (highest > peak[r]) {
            store(sums + r * kLanes, load(sums + r * kLanes) * exponential(all(peak[r] - highest)));
            peak[r] = highest;
          }
          for (int64_t i = 0; i < kPanel; i += kLanes)
            store(sums + r * kLanes, load(sums + r * kLanes) + exponential(load(value + i) - all(peak[r])));
        }
        for (const int64_t* output = forbidden; output < last_forbidden; output++) value[*output - begin] = -INFINITY;
        if (highest > best.value[(r + 1) * best.count - 1]) add_best(value, begin, best, r);
      }
    }
    suppressed = last_suppressed;
    forbidden = last_forbidden;
  }
  for (int64_t r = 0; best.log_sum && r < rows; r++) best.log_sum[r] = peak[r] + static_cast<float>(logarithm(sum(load(sums + r * kLanes))));
}

// Advances some rows, from `first` on; outputs begin with the first of them.
inline void step_some(State* state, int64_t first, int64_t rows, const int64_t* token, const Outputs& outputs) {
  const Model& model = *state->model;
  const int64_t source = longest_source(*state), longest = source > state->position + 1 ? source : state->position + 1;
  const int64_t context_width = model.heads * model.value_room();
  Scratch scratch(state);
  Stream stream = make_stream(model, rows, scratch);
  float* weights = scratch.take<float>(padded(longest));
  float* context = scratch.take<float>(context_width);
  float* peak = scratch.take<float>(rows);
  float* sums = scratch.take<float>(rows * kLanes);
  for (int64_t r = 0; r < rows; r++) stream.embedded(model.target, r, token[r], state->position);
  for (int64_t l = 0; l < model.decoder_layers; l++) {
    const DecoderLayer& layer = model.decoder[l];
    Cache& cache = state->caches[l];
    stream.projected(layer.norm, layer.target);
    if (model.recurrent)
      advance_cells(cache, layer, stream, first);
    else
      attend_to_past(state, l, layer, stream, first, weights, context);
    stream.projected(layer.cross_norm, layer.cross_query);
    attend_to_memory(state, cache, layer, stream, first, weights, context, l == model.decoder_layers - 1 ? outputs.attention : nullptr);
    stream.feed_forward(layer.feed_forward);
  }
  stream.normalized(model.decoder_norm);
  const Linear& projection = state->is_restricted ? state->listed : model.projection;
  for (int64_t r = 0; r < rows; r++) {
    float* row = stream.x + r * model.width;
    for (int64_t i = 0; model.output_scale != 1 && i < model.width; i += kLanes)
      store(row + i, load(row + i) * all(model.output_scale));
    quantize(row, model.width, projection, stream.integers + r * projection.inputs);
  }
  const uint8_t* usable = state->is_restricted ? state->usable.data() : nullptr;
  if (float* logits = outputs.logits) {
    product(stream.integers, rows, projection, {logits, projection.outputs, nullptr});
    for (int64_t r = 0; usable && r < rows; r++)
      leave_out(logits + r * projection.outputs, usable + state->sentence[first + r] * projection.panels() * kPanel, projection.outputs);
  }
  if (Best* best = outputs.best) {
    best->usable = usable;
    best->sentence = state->sentence.data() + first;
    best->peak = peak;
    best->sums = sums;
    best_outputs(stream.integers, rows, projection, *best);
  }
}

// Advances every row by one token, as many at a time as stay in the cache.
inline void step(State* state, const int64_t* token, const Outputs& outputs) {
  const int64_t logits = (state->is_restricted ? state->listed : state->model->projection).outputs;
  for (int64_t first = 0; first < state->rows; first += kRowsTogether) {
    const int64_t rows = state->rows - first < kRowsTogether ? state->rows - first : kRowsTogether;
    Outputs part = outputs;
    Best best{};
    if (part.logits) part.logits += first * logits;
    if (part.attention) part.attention += first * longest_source(*state);
    if (part.best) {
      best = *part.best;
      best.value += first * best.count;
      best.output += first * best.count;
      if (best.log_sum) best.log_sum += first;
      part.best = &best;
    }
    step_some(state, first, rows, token + first, part);
  }
}

}  // namespace EDGEFORMER_LEVEL
}  // namespace edgeformer
