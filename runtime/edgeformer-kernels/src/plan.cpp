// Reads a plan: numbers in a fixed order, in which places are offsets into the bundle's weights. Everything is checked
// before it is used: a plan may come from anyone.
#include "model.h"

#include <cmath>
#include <initializer_list>

namespace edgeformer {
namespace {

constexpr int64_t kMostWidth = 1 << 16;  // 2^16 products of 255 and 127 fit into 32 bits
constexpr int64_t kMostRows = 1 << 24, kMostLayers = 1 << 10;
// Packed products take at most so many times the bytes of the weights, and a few more: a small plan must not fill the memory.
constexpr int64_t kMostUses = 4, kFewBytes = 1 << 20;
constexpr double kVersion = 1;

// Inputs or outputs of a product, and the width of a head if they are divided into heads.
struct Axis {
  int64_t count, head = 0;
  Axis(int64_t count, int64_t head = 0) : count(count), head(head) {}
};

class Reader {
 public:
  Reader(const Weights& weights, const double* numbers, int64_t count, const Kernels& kernels)
      : weights_(weights), next_(numbers), end_(numbers + count), kernels_(kernels) {}

  const char* problem() const { return problem_; }
  bool failed() const { return problem_ != nullptr; }
  bool is_at_end() const { return next_ == end_; }

  void fail(const char* problem) {
    if (!problem_) problem_ = problem;
  }

  double number() {
    if (next_ == end_) {
      fail("it ends too early");
      return 0;
    }
    return *next_++;
  }

  int64_t whole(double least, double most, const char* what) {
    const double value = number();
    if (!(value >= least && value <= most) || value != std::floor(value)) {
      fail(what);
      return static_cast<int64_t>(least);
    }
    return static_cast<int64_t>(value);
  }

  bool flag() { return whole(0, 1, "a flag is neither 0 nor 1"); }

  float real(double least, double most, const char* what) {
    const double value = number();
    if (!(value >= least && value <= most)) fail(what);
    return static_cast<float>(value);
  }

  // A tensor of the weights; none if the offset is -1 and that is allowed.
  template <class T>
  const T* tensor(int64_t count, bool is_optional = false) {
    const double most = static_cast<double>(weights_.size);
    const int64_t offset = whole(is_optional ? -1 : 0, most, "an offset is outside the weights");
    if (offset < 0 || failed()) return nullptr;
    if (offset % alignof(T)) fail("a tensor is not aligned");
    if (static_cast<double>(offset) + static_cast<double>(count) * sizeof(T) > most) fail("a tensor is outside the weights");
    return failed() ? nullptr : reinterpret_cast<const T*>(weights_.data + offset);
  }

  // A tensor of singles, of which some are used.
  const float* floats(int64_t count, bool is_optional, int64_t first, int64_t used) {
    const float* values = tensor<float>(count, is_optional);
    for (int64_t i = first; values && i < first + used && !failed(); i++)
      if (!std::isfinite(values[i])) fail("a tensor has a number that is not finite");
    return failed() ? nullptr : values;
  }
  const float* floats(int64_t count, bool is_optional = false) { return floats(count, is_optional, 0, count); }

  Norm norm(int64_t width, bool is_optional = false) {
    Norm norm;
    norm.weight = floats(width, is_optional);
    norm.bias = floats(width, true);
    return norm;
  }

  StoredLinear stored(Axis inputs, Axis outputs) {
    StoredLinear linear;
    linear.inputs = inputs.count;
    linear.input_head = inputs.head;
    linear.output_head = outputs.head;
    linear.columns = whole(1, kMostRows, "a product has no outputs, or too many");
    linear.first = whole(0, kMostRows, "outputs of a product are outside of it");
    linear.count = whole(1, kMostRows, "outputs of a product are outside of it");
    if (linear.first + linear.count > linear.columns || linear.count != outputs.count) fail("outputs of a product are outside of it");
    packed_ += packed_bytes(padded(spread(linear.inputs, linear.input_head)), spread(linear.count, linear.output_head));
    if (packed_ > kMostUses * weights_.size + kFewBytes) fail("its products take more memory than the weights explain");
    linear.by_rows = flag();
    linear.weight = tensor<int8_t>(linear.inputs * linear.columns);
    linear.scale = floats(linear.columns, false, linear.first, linear.count);
    linear.bias = floats(linear.columns, true, linear.first, linear.count);
    linear.input_scale = real(1e-30, 1e30, "the scale of an input is not positive");
    linear.input_zero = static_cast<int32_t>(whole(0, 255, "a zero point is outside 0 ... 255"));
    linear.input_most = static_cast<int32_t>(whole(1, 255, "the largest integer is outside 1 ... 255"));
    return linear;
  }

  void packed(const StoredLinear* parts, int count, Linear* out) {
    if (!failed() && !pack(kernels_, parts, count, nullptr, 0, out)) fail(kNoMemory);
  }

  void linear(Axis inputs, Axis outputs, Linear* out) {
    const StoredLinear part = stored(inputs, outputs);
    packed(&part, 1, out);
  }

  // Products of the same input; those with the same scale of it become one.
  void projection(Axis inputs, std::initializer_list<Axis> outputs, Projection* out) {
    StoredLinear parts[3];
    int count = 0;
    for (const Axis& axis : outputs) {
      parts[count++] = stored(inputs, axis);
      out->outputs += spread(axis.count, axis.head);
    }
    for (int first = 0, last; first < count && !failed(); first = last) {
      const StoredLinear& one = parts[first];
      for (last = first + 1; last < count; last++) {
        const StoredLinear& other = parts[last];
        if (other.input_scale != one.input_scale || other.input_zero != one.input_zero || other.input_most != one.input_most) break;
      }
      packed(parts + first, last - first, &out->part[out->parts++]);
    }
  }

 private:
  const Weights& weights_;
  const double *next_, *end_;
  const Kernels& kernels_;
  const char* problem_ = nullptr;
  int64_t packed_ = 0;  // bytes of all products
};

void read_sizes(Reader& reader, Model* model) {
  model->recurrent = reader.flag();
  model->width = reader.whole(16, kMostWidth, "the width is too small or too large");
  model->heads = reader.whole(1, 1024, "there are too few or too many heads");
  model->key_width = reader.whole(1, 4096, "heads are too narrow or too wide");
  model->value_width = reader.whole(1, 4096, "heads are too narrow or too wide");
  model->encoder_inner = reader.whole(16, kMostWidth, "a feed-forward layer is too narrow or too wide");
  model->decoder_inner = reader.whole(16, kMostWidth, "a feed-forward layer is too narrow or too wide");
  if (model->width % 16 || model->encoder_inner % 16 || model->decoder_inner % 16) reader.fail("a width is no multiple of 16");
  if (model->heads * model->value_width > kMostWidth || model->heads * model->key_width > kMostWidth) reader.fail("heads are too wide");
  model->norm_first = reader.flag();
  model->norm_centers = reader.flag();
  model->gated = reader.flag();
  model->activation = static_cast<Activation>(reader.whole(0, 4, "the activation is unknown"));
  model->epsilon = reader.real(1e-30, 1, "epsilon is not positive");
  model->encoder_scale = reader.real(1e-6, 1e6, "a scale is not positive");
  model->decoder_scale = reader.real(1e-6, 1e6, "a scale is not positive");
  model->cross_scale = reader.real(1e-6, 1e6, "a scale is not positive");
  model->output_scale = reader.real(1e-6, 1e6, "a scale is not positive");
}

void read_embedding(Reader& reader, const Model& model, Embedding* embedding) {
  embedding->rows = reader.whole(1, kMostRows, "a vocabulary is empty or too large");
  embedding->table = reader.tensor<int8_t>(embedding->rows * model.width);
  embedding->scale = reader.floats(embedding->rows);
  embedding->positions = reader.whole(1, kMostRows, "there are no positions, or too many");
  embedding->position = reader.floats(embedding->positions * model.width, true);
  embedding->norm = reader.norm(model.width, true);
}

void read_feed_forward(Reader& reader, const Model& model, int64_t inner, FeedForward* layer) {
  layer->norm = reader.norm(model.width);
  if (model.gated)
    reader.projection(model.width, {inner, inner}, &layer->inner);
  else
    reader.projection(model.width, {inner}, &layer->inner);
  reader.linear(inner, model.width, &layer->outer);
}

void read_encoder(Reader& reader, Model* model) {
  const Axis keys(model->heads * model->key_width, model->key_width), values(model->heads * model->value_width, model->value_width);
  model->encoder_layers = reader.whole(1, kMostLayers, "there are too few or too many layers");
  if (reader.failed() || !(model->encoder = create<EncoderLayer>(model->encoder_layers))) return reader.fail(kNoMemory);
  for (int64_t l = 0; l < model->encoder_layers && !reader.failed(); l++) {
    EncoderLayer& layer = model->encoder[l];
    layer.norm = reader.norm(model->width);
    reader.projection(model->width, {keys, keys, values}, &layer.query_key_value);
    reader.linear(values, model->width, &layer.output);
    read_feed_forward(reader, *model, model->encoder_inner, &layer.feed_forward);
  }
  model->encoder_norm = reader.norm(model->width, true);
}

void read_decoder(Reader& reader, Model* model) {
  const Axis keys(model->heads * model->key_width, model->key_width), values(model->heads * model->value_width, model->value_width);
  model->decoder_layers = reader.whole(1, kMostLayers, "there are too few or too many layers");
  if (reader.failed() || !(model->decoder = create<DecoderLayer>(model->decoder_layers))) return reader.fail(kNoMemory);
  for (int64_t l = 0; l < model->decoder_layers && !reader.failed(); l++) {
    DecoderLayer& layer = model->decoder[l];
    layer.norm = reader.norm(model->width);
    if (model->recurrent) {
      reader.projection(model->width, {model->width, model->width}, &layer.target);
    } else {
      reader.projection(model->width, {keys, keys, values}, &layer.target);
      reader.linear(values, model->width, &layer.output);
    }
    reader.projection(model->width, {keys, values}, &layer.memory);
    layer.cross_norm = reader.norm(model->width);
    reader.projection(model->width, {keys}, &layer.cross_query);
    reader.linear(values, model->width, &layer.cross_output);
    read_feed_forward(reader, *model, model->decoder_inner, &layer.feed_forward);
  }
  model->decoder_norm = reader.norm(model->width, true);
}

// Packs the weights of one output, which are beside each other, and returns their sum. Lists of tokens are packed for every
// sentence, so that this has to be fast.
template <class Group>
int32_t pack_groups(const int8_t* source, int64_t inputs, int8_t* target) {
  int32_t sum = 0;
  for (int64_t k = 0; k < inputs; k++) sum += source[k];
  for (int64_t k = 0; k < inputs; k += sizeof(Group), target += kPanel * sizeof(Group))
    std::memcpy(target, source + k, sizeof(Group));
  return sum;
}

int32_t pack_row(const int8_t* source, int64_t inputs, int64_t group, int8_t* target) {
  return group == 4 ? pack_groups<int32_t>(source, inputs, target) : pack_groups<int16_t>(source, inputs, target);
}

// The same for weights that are `stride` apart, or whose inputs are divided into heads.
int32_t pack_column(const int8_t* source, int64_t stride, const StoredLinear& part, int64_t group, int8_t* target) {
  int32_t sum = 0;
  for (int64_t k = 0; k < part.inputs; k++) {
    const int64_t input = spread(k, part.input_head);
    target[input / group * (kPanel * group) + input % group] = source[k * stride];
    sum += source[k * stride];
  }
  return sum;
}

}  // namespace

const char* read_plan(const Weights& weights, const double* numbers, int64_t count, Model* model) {
  Reader reader(weights, numbers, count, *model->kernels);
  if (reader.number() != kVersion) reader.fail("its version is unknown");
  read_sizes(reader, model);
  if (!reader.failed()) read_embedding(reader, *model, &model->source);
  if (!reader.failed()) read_embedding(reader, *model, &model->target);
  if (!reader.failed()) read_encoder(reader, model);
  if (!reader.failed()) read_decoder(reader, model);
  if (!reader.failed()) {
    model->stored_projection = reader.stored(model->width, model->target.rows);
    reader.packed(&model->stored_projection, 1, &model->projection);
  }
  if (!reader.failed() && !reader.is_at_end()) reader.fail("it is too long");
  return reader.problem();
}

bool pack(const Kernels& kernels, const StoredLinear* parts, int count, const int64_t* listed, int64_t listed_count, Linear* out) {
  const int64_t group = kernels.group;
  out->inputs = padded(spread(parts[0].inputs, parts[0].input_head));
  out->outputs = 0;
  for (int p = 0; p < count; p++) out->outputs += listed ? listed_count : spread(parts[p].count, parts[p].output_head);
  out->input_scale = parts[0].input_scale;
  out->input_zero = parts[0].input_zero;
  out->input_most = parts[0].input_most;
  const int64_t columns = out->panels() * kPanel;
  if (!out->weight.zeros(columns * out->inputs) || !out->scale.zeros(columns) || !out->correction.zeros(columns) || !out->bias.zeros(columns))
    return false;
  int64_t begin = 0;
  for (int p = 0; p < count; p++) {
    const StoredLinear& part = parts[p];
    const int64_t outputs = listed ? listed_count : part.count;
    for (int64_t i = 0; i < outputs; i++) {
      const int64_t from = part.first + (listed ? listed[i] : i), column = begin + spread(i, part.output_head);
      out->scale[column] = part.input_scale * part.scale[from];
      out->bias[column] = part.bias ? part.bias[from] : 0;
      // Weights of one output are `kPanel * group` apart from group to group.
      int8_t* target = out->weight.data() + column / kPanel * kPanel * out->inputs + column % kPanel * group;
      const int8_t* source = part.weight + (part.by_rows ? from * part.inputs : from);
      const int64_t stride = part.by_rows ? 1 : part.columns;
      const int32_t sum = stride == 1 && !part.input_head ? pack_row(source, part.inputs, group, target)
                                                          : pack_column(source, stride, part, group, target);
      out->correction[column] = sum * (part.input_zero - kernels.signed_shift);
    }
    begin += spread(outputs, part.output_head);
  }
  return true;
}

}  // namespace edgeformer
