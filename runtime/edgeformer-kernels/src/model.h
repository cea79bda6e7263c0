// A model ready to compute: the plan of a bundle with packed weights, and the state of a batch. At the end, what the other
// files do with them.
#pragma once

#include <cstdint>

#include "../include/edgeformer_kernels.h"
#include "memory.h"

namespace edgeformer {

constexpr int kPanel = 64;  // outputs of a product that are computed together; see product.h
constexpr int64_t kRowsTogether = 128;  // their numbers stay in the second cache, and weights are read once for them

// Some outputs of a product as the bundle stores them.
struct StoredLinear {
  const int8_t* weight = nullptr;  // (inputs, columns), or (columns, inputs) if `by_rows`
  int64_t inputs = 0, columns = 0, first = 0, count = 0;  // outputs `first` ... of the columns
  bool by_rows = false;
  int64_t input_head = 0, output_head = 0;  // width of a head, if inputs or outputs are divided into heads
  const float* scale = nullptr;    // (columns,)
  const float* bias = nullptr;     // (columns,), or none
  float input_scale = 1;
  int32_t input_zero = 0, input_most = 255;
};

// y = x W^T + b in 8-bit integers: W has one scale per output, x one scale and one zero point, found at export.
struct Linear {
  int64_t inputs = 0, outputs = 0;  // heads are padded to whole vectors, and all outputs to whole panels
  float input_scale = 1;
  int32_t input_zero = 0, input_most = 255;  // x / scale + zero is rounded and clipped to 0 ... most
  Array<int8_t> weight;        // (panels, inputs / group, 64, group): see product.h
  Array<float> scale;          // input scale times the output's weight scale
  Array<int32_t> correction;   // sum of the output's weights times the zero point
  Array<float> bias;           // zeros if there is none
  EDGEFORMER_INLINE int64_t panels() const { return (outputs + kPanel - 1) / kPanel; }
};

// Bytes of a packed product, whose inputs are padded already.
inline int64_t packed_bytes(int64_t inputs, int64_t outputs) {
  return (outputs + kPanel - 1) / kPanel * kPanel * (inputs + 2 * static_cast<int64_t>(sizeof(float)) + static_cast<int64_t>(sizeof(int32_t)));
}

// Up to three products of the same input, whose outputs lie beside each other. Those with the same scale are one.
struct Projection {
  Linear part[3];
  int parts = 0;
  int64_t outputs = 0;
};

// y = x / rms(x) * weight, or with x - mean(x) for x, plus bias. Without a weight, there is no norm.
struct Norm {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

struct Embedding {
  int64_t rows = 0, positions = 0;
  const int8_t* table = nullptr;          // (rows, D)
  const float* scale = nullptr;           // (rows,), with the embeddings' factor
  const float* position = nullptr;        // (positions, D), or none
  Norm norm;
};

struct FeedForward {
  Norm norm;
  Projection inner;  // if gated, the gate, and what it multiplies
  Linear outer;
};

struct EncoderLayer {
  Norm norm;
  Projection query_key_value;
  Linear output;
  FeedForward feed_forward;
};

struct DecoderLayer {
  Norm norm, cross_norm;
  Projection target;       // queries, keys and values; candidate and forget gate of an SSRU
  Linear output;           // of self-attention; an SSRU has none
  Projection memory;       // keys and values of the encoder's output
  Projection cross_query;
  Linear cross_output;
  FeedForward feed_forward;
};

enum class Activation { kRelu, kGelu, kGeluTanh, kGeluSigmoid, kSilu };

struct Model {
  int64_t width = 0, heads = 0, key_width = 0, value_width = 0;  // D, H, E, F
  int64_t encoder_inner = 0, decoder_inner = 0;                  // width of the feed-forward layers
  bool norm_first = false, norm_centers = true, gated = false, recurrent = false;
  Activation activation = Activation::kRelu;
  float epsilon = 0, encoder_scale = 1, decoder_scale = 1, cross_scale = 1;  // factors of the attention's scores
  Embedding source, target;
  int64_t encoder_layers = 0, decoder_layers = 0;
  EncoderLayer* encoder = nullptr;
  DecoderLayer* decoder = nullptr;
  Norm encoder_norm, decoder_norm;
  StoredLinear stored_projection;
  Linear projection;
  float output_scale = 1;
  const struct Kernels* kernels = nullptr;
  // What the last batch leaves to the next one, whose memory then need not come from the system again.
  mutable struct State* spare = nullptr;

  // Heads are padded to whole vectors.
  EDGEFORMER_INLINE int64_t key_room() const { return padded(key_width); }
  EDGEFORMER_INLINE int64_t value_room() const { return padded(value_width); }
  EDGEFORMER_INLINE int64_t past_width() const { return recurrent ? 0 : heads * (key_room() + value_room()); }  // of a layer
  ~Model();
};

// What a decoder layer keeps of the encoder's output, and the cells of an SSRU.
struct Cache {
  Array<float> memory_key;    // (N, H, E, S'): transposed, S padded to whole vectors
  Array<float> memory_value;  // (N, H, S', F)
  Array<float> cells;         // (R, D)
};

struct State {
  const Model* model = nullptr;
  int64_t sentences = 0, rows = 0;  // N; R, which become fewer
  int64_t position = 0;             // steps made
  int64_t capacity = 0;             // steps that there is room for
  Cache* caches = nullptr;          // of each decoder layer
  Array<int64_t> length;            // tokens of each sentence
  Array<int64_t> first;             // where each sentence's memory begins, in tokens, padded to whole vectors
  Array<int32_t> sentence;          // sentence of each row
  // Keys and values of self-attention that each step wrote, (rows of the step, layers, H E + H F).
  Array<Array<float>> past;
  // Row of each step that has what a row continues, (R, capacity). So hypotheses can be reordered without moving what they
  // have in common.
  Array<int32_t> owner;
  Linear listed;                        // the projection, if it is restricted to some tokens
  bool is_restricted = false;
  Array<uint8_t> usable;                // whether each sentence may use each listed token, (N, C in whole panels)
  Array<uint8_t> scratch;
  Array<int32_t> spare_rows, spare_owner;
  Array<float> spare_cells;
  ~State() {
    destroy(caches, model ? model->decoder_layers : 0);
    for (int64_t t = 0; t < capacity; t++) past[t].~Array<float>();
  }
};

// What a search needs of a step's logits.
struct Best {
  int64_t count = 0;              // outputs to find in each row
  float* value = nullptr;         // their logits, best first, (R, count)
  int64_t* output = nullptr;      // (R, count)
  float* log_sum = nullptr;       // logarithm of the sum of the exponentials of all logits, (R,); null if not wanted
  const int64_t* suppressed = nullptr;  // outputs that do not exist, in ascending order
  int64_t suppressed_count = 0;
  const uint8_t* usable = nullptr;      // outputs that exist for each sentence, (N, outputs in whole panels), or all
  const int32_t* sentence = nullptr;    // of each row
  const int64_t* forbidden = nullptr;   // outputs that count in the sum, but are not found
  int64_t forbidden_count = 0;
  float *peak = nullptr, *sums = nullptr;  // scratch
};

// What a step writes; null pointers for what is not wanted.
struct Outputs {
  float* logits = nullptr;     // (R, V), or (R, C) if the projection is restricted
  Best* best = nullptr;
  float* attention = nullptr;  // of the last layer to the encoder's output, averaged over heads, (R, S)
};

// What is compiled once for every instruction set.
struct Kernels {
  const char* name;
  int group;           // consecutive inputs whose weights lie together
  int signed_shift;    // subtracted from inputs and zero points where products need signed integers
  void (*encode)(State*, const int64_t* token);
  void (*step)(State*, const int64_t* token, const Outputs& outputs);
};

// Packs outputs for the products of some kernels: all of a stored product, or those in `listed`.
bool pack(const Kernels& kernels, const StoredLinear* parts, int count, const int64_t* listed, int64_t listed_count, Linear* out);

constexpr const char* kNoMemory = "there is not enough memory";

struct Weights {
  const uint8_t* data;
  int64_t size;
};

// plan.cpp: fills a model whose kernels are chosen. Returns what is wrong with the plan; null if nothing is.
const char* read_plan(const Weights& weights, const double* numbers, int64_t count, Model* model);

// levels.cpp: the kernels of an instruction set, or the best ones if there is no name; null if the processor cannot run
// them. Then the names of all that it can run.
const Kernels* find_kernels(const char* name);
const char* level_names();

// state.cpp: makes room for sentences and their caches, and encodes them. Null if there is not enough memory.
State* start(const Model* model, const int64_t* token, const int64_t* length, int64_t sentences);

// Frees a state, or leaves it to the next batch.
void end(State* state);

// Bytes that a state holds, those that an earlier batch left to it included.
int64_t held(const State& state);

// The most bytes that a batch takes while it is searched or stepped, its results included.
double batch_bytes(const Model& model, int64_t sentences, int64_t rows, int64_t source, int64_t steps);

// Numbers of a row of the widest product.
int64_t widest(const Model& model);

// Advances every row by one token.
bool advance(State* state, const int64_t* token, const Outputs& outputs);

// Tokens of the longest sentence, S.
int64_t longest_source(const State& state);

// Continues with other rows: for each, the row that it continues.
bool select(State* state, const int64_t* rows, int64_t count);

// Restricts the projection to some tokens, of which each sentence may use some, (N, count).
bool set_shortlist(State* state, const int64_t* listed, int64_t count, const uint8_t* usable);

// search.cpp: greedy and beam search; see edgeformer_search. `listed` has the tokens of the outputs, if the projection is
// restricted.
enum class Outcome { kFailed = 0, kDone = 1, kNotFinite = 2 };
Outcome search(State* state, const int64_t* begin, int64_t begin_count, const int64_t* most, const double* initial,
               const edgeformer_options& options, const int64_t* listed, void (*begun)(void), int (*stopped)(int64_t sentence),
               void (*ended)(int64_t sentence), const edgeformer_results& results);

}  // namespace edgeformer
