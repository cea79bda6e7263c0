// Products of 8-bit integers, exact on every processor.
//
// A weight is packed in panels of 64 outputs. In a panel, the weights of `kGroup` consecutive inputs of an output lie
// together, then those of the next output: what one instruction multiplies with `kGroup` inputs, repeated for every
// output, and adds up in 32 bits. So a panel is read once from its beginning to its end, and no weight is moved inside
// a register. With VNNI and the dot products of ARM, a group is four inputs; elsewhere, it is two, which are widened to
// 16 bits, since the 8-bit products of AVX2 saturate.
//
// Weights are read from memory once for `kRows` rows of inputs.
#pragma once

#include "model.h"
#include "vectors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

namespace edgeformer {
namespace EDGEFORMER_LEVEL {

// Inputs repeated for every output, as `Inputs`; weights of `kWidth` outputs, as `Weights`.
#if defined(EDGEFORMER_AVX512_VNNI)
typedef uint8_t Input;
typedef __m512i Sums, Inputs, Weights;
constexpr int kGroup = 4, kShift = 0, kRows = 4, kTile = 4;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return _mm512_set1_epi32(group); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return _mm512_load_si512(weight); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) { return _mm512_dpbusd_epi32(sums, input, weight); }
#elif defined(EDGEFORMER_AVX_VNNI)
typedef uint8_t Input;
typedef __m256i Sums, Inputs, Weights;
constexpr int kGroup = 4, kShift = 0, kRows = 4, kTile = 2;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return _mm256_set1_epi32(group); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(weight)); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) { return _mm256_dpbusd_avx_epi32(sums, input, weight); }
#elif defined(EDGEFORMER_AVX2)
typedef int16_t Input;
typedef __m256i Sums, Inputs, Weights;
constexpr int kGroup = 2, kShift = 0, kRows = 4, kTile = 2;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return _mm256_set1_epi32(group); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(weight)));
}
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(weight, input));
}
#elif defined(EDGEFORMER_NEON_DOT)
typedef int8_t Input;
typedef int32x4_t Sums;
typedef int8x16_t Inputs, Weights;
constexpr int kGroup = 4, kShift = 128, kRows = 4, kTile = 4;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return vreinterpretq_s8_s32(vdupq_n_s32(group)); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return vld1q_s8(weight); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) { return vdotq_s32(sums, weight, input); }
#elif defined(EDGEFORMER_NEON)
typedef int16_t Input;
typedef int32x4_t Sums;
typedef int16x8_t Inputs, Weights;
constexpr int kGroup = 2, kShift = 0, kRows = 4, kTile = 4;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return vreinterpretq_s16_s32(vdupq_n_s32(group)); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return vmovl_s8(vld1_s8(weight)); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) {
  const int32x4_t low = vmull_s16(vget_low_s16(weight), vget_low_s16(input)), high = vmull_high_s16(weight, input);
  return vaddq_s32(sums, vpaddq_s32(low, high));
}
#elif defined(EDGEFORMER_RELAXED_UNSIGNED) || defined(EDGEFORMER_RELAXED_SIGNED)
// Whether it reads inputs with or without a sign is left to the host, which is asked before: see levels.cpp.
#if defined(EDGEFORMER_RELAXED_UNSIGNED)
typedef uint8_t Input;
constexpr int kShift = 0;
#else
typedef int8_t Input;
constexpr int kShift = 128;
#endif
typedef v128_t Sums, Inputs, Weights;
constexpr int kGroup = 4, kRows = 4, kTile = 2;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return wasm_i32x4_splat(group); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return wasm_v128_load(weight); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) {
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(weight, input, sums);
}
#elif defined(EDGEFORMER_SIMD128)
typedef int16_t Input;
typedef v128_t Sums, Inputs, Weights;
constexpr int kGroup = 2, kShift = 0, kRows = 4, kTile = 2;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return wasm_i32x4_splat(group); }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return wasm_i16x8_load8x8(weight); }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) {
  return wasm_i32x4_add(sums, wasm_i32x4_dot_i16x8(weight, input));
}
#else
typedef int16_t Input;
typedef int32_t Sums __attribute__((vector_size(16), may_alias));
typedef int32_t Inputs;
typedef const int8_t* Weights;
constexpr int kGroup = 2, kShift = 0, kRows = 4, kTile = 4;
EDGEFORMER_INLINE Inputs repeated(int32_t group) { return group; }
EDGEFORMER_INLINE Weights weights(const int8_t* weight) { return weight; }
EDGEFORMER_INLINE Sums multiply_add(Sums sums, Weights weight, Inputs input) {
  int16_t pair[2];
  std::memcpy(pair, &input, sizeof pair);
  for (int i = 0; i < 4; i++) sums[i] += weight[2 * i] * pair[0] + weight[2 * i + 1] * pair[1];
  return sums;
}
#endif

constexpr int kWidth = sizeof(Sums) / 4;  // outputs of one instruction
constexpr int kTileOfOne = 4;             // `kTile` is how many instructions beside each other share inputs; for one row, so many
typedef int32_t IntsOfSums __attribute__((vector_size(sizeof(Sums)), aligned(4), may_alias));
typedef float FloatsOfSums __attribute__((vector_size(sizeof(Sums)), aligned(4), may_alias));

// Rounds inputs to integers as ONNX Runtime does: x / scale, to the nearest even, plus the zero point, clipped.
EDGEFORMER_INLINE void quantize(const float* x, int64_t count, const Linear& linear, Input* out) {
  const int32_t zero = linear.input_zero;
  const Floats scale = all(linear.input_scale), least = all(-zero), most = all(linear.input_most - zero);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Ints value = rounded(smaller(larger(load(x + i) / scale, least), most)) + (zero - kShift);
    typedef Input Narrow __attribute__((vector_size(kLanes * sizeof(Input)), aligned(1), may_alias));
    *reinterpret_cast<Narrow*>(out + i) = __builtin_convertvector(value, Narrow);
  }
}

// What becomes of a product.
struct Result {
  float* out;              // (rows, outputs), with `stride` from row to row, from the first output that is computed
  int64_t stride;
  const float* residual;   // added, with the same stride; none if null
};

EDGEFORMER_INLINE Inputs repeated(const Input* input) {
  int32_t group;
  static_assert(sizeof group == kGroup * sizeof(Input));
  std::memcpy(&group, input, sizeof group);
  return repeated(group);
}

// The sums of `Rows` rows and `Tile` vectors of outputs, which stay in registers. With one row, alternate groups have
// sums of their own, since an instruction would otherwise wait for the one before.
template <int Rows, int Tile>
EDGEFORMER_INLINE void tile(const Input* x, int64_t x_stride, const int8_t* weight, int64_t groups, Sums (&sums)[Rows][Tile]) {
  constexpr int kStep = kPanel * kGroup, kVector = kWidth * kGroup;
  for (auto& row : sums)
    for (auto& sum : row) sum = Sums{};
  if constexpr (Rows == 1) {
    Sums odd[Tile] = {};
    for (int64_t g = 0; g < groups; g += 2, weight += 2 * kStep) {
      const Inputs even_inputs = repeated(x + g * kGroup), odd_inputs = repeated(x + (g + 1) * kGroup);
      for (int j = 0; j < Tile; j++) {
        sums[0][j] = multiply_add(sums[0][j], weights(weight + j * kVector), even_inputs);
        odd[j] = multiply_add(odd[j], weights(weight + kStep + j * kVector), odd_inputs);
      }
    }
    for (int j = 0; j < Tile; j++) sums[0][j] = (Sums)((IntsOfSums)sums[0][j] + (IntsOfSums)odd[j]);
  } else {
    for (int64_t g = 0; g < groups; g++, weight += kStep) {
      Inputs inputs[Rows];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; r++) inputs[r] = repeated(x + r * x_stride + g * kGroup);
#pragma GCC unroll 4
      for (int j = 0; j < Tile; j++) {
        const Weights used = weights(weight + j * kVector);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; r++) sums[r][j] = multiply_add(sums[r][j], used, inputs[r]);
      }
    }
  }
}

// Some rows of one panel, from integers to floats: (sum - correction) * scale + bias, as ONNX Runtime rounds it.
template <int Rows>
EDGEFORMER_INLINE void panel_rows(const Input* x, const Linear& linear, int64_t panel, const Result& result) {
  const int8_t* weight = linear.weight.data() + panel * linear.inputs * kPanel;
  constexpr int kNow = Rows == 1 ? kTileOfOne : kTile;
  for (int first = 0; first < kPanel; first += kNow * kWidth) {
    Sums sums[Rows][kNow];
    tile<Rows, kNow>(x, linear.inputs, weight + first * kGroup, linear.inputs / kGroup, sums);
    for (int r = 0; r < Rows; r++)
      for (int j = 0; j < kNow; j++) {
        const int64_t column = panel * kPanel + first + j * kWidth;
        if (column >= linear.outputs) break;
        const IntsOfSums correction = *reinterpret_cast<const IntsOfSums*>(linear.correction.data() + column);
        const FloatsOfSums scale = *reinterpret_cast<const FloatsOfSums*>(linear.scale.data() + column);
        FloatsOfSums value = __builtin_convertvector((IntsOfSums)sums[r][j] - correction, FloatsOfSums) * scale;
        value += *reinterpret_cast<const FloatsOfSums*>(linear.bias.data() + column);
        const int64_t place = r * result.stride + first + j * kWidth;
        float* out = result.out + place;
        if (result.residual) {
          FloatsOfSums before = {};
          const int64_t left = linear.outputs - column < kWidth ? linear.outputs - column : kWidth;
          std::memcpy(&before, result.residual + place, left * sizeof(float));
          value = before + value;
        }
        if (column + kWidth <= linear.outputs)
          *reinterpret_cast<FloatsOfSums*>(out) = value;
        else
          std::memcpy(out, &value, (linear.outputs - column) * sizeof(float));
      }
  }
}

inline void panel_product(const Input* x, int64_t rows, const Linear& linear, int64_t panel, Result result) {
  while (rows > 0) {
    const int64_t now = rows < kRows ? rows : kRows;
    switch (now) {
      case 1: panel_rows<1>(x, linear, panel, result); break;
      case 2: panel_rows<2>(x, linear, panel, result); break;
      case 3: panel_rows<3>(x, linear, panel, result); break;
      default: panel_rows<kRows>(x, linear, panel, result);
    }
    rows -= now;
    x += now * linear.inputs;
    result.out += now * result.stride;
    if (result.residual) result.residual += now * result.stride;
  }
}

// (rows, inputs) integers to (rows, outputs) floats. A panel of weights stays in the cache for all rows.
inline void product(const Input* x, int64_t rows, const Linear& linear, Result result) {
  for (int64_t panel = 0; panel < linear.panels(); panel++) {
    panel_product(x, rows, linear, panel, result);
    result.out += kPanel;
    if (result.residual) result.residual += kPanel;
  }
}

}  // namespace EDGEFORMER_LEVEL
}  // namespace edgeformer
