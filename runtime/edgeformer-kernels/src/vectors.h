// Sixteen floats at a time, on every processor: GCC and Clang split such vectors into those that the processor has.
//
// Everything that rounds is written with these operations, in one order, and compiled without contraction of products
// and sums. So the results have the same bits whatever the width of the processor's registers is.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory.h"

namespace edgeformer {

typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4), may_alias));

EDGEFORMER_INLINE Floats load(const float* source) { return *reinterpret_cast<const Floats*>(source); }
EDGEFORMER_INLINE void store(float* target, Floats value) { *reinterpret_cast<Floats*>(target) = value; }
EDGEFORMER_INLINE Floats all(float value) { return Floats{} + value; }

typedef float Eight __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
EDGEFORMER_INLINE Eight lower(Floats v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
EDGEFORMER_INLINE Eight upper(Floats v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }
EDGEFORMER_INLINE Four lower(Eight v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3); }
EDGEFORMER_INLINE Four upper(Eight v) { return __builtin_shufflevector(v, v, 4, 5, 6, 7); }
EDGEFORMER_INLINE Floats joined(Eight a, Eight b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
EDGEFORMER_INLINE Eight joined(Four a, Four b) { return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7); }

#if defined(__AVX512F__)
constexpr size_t kRegister = 64;
#elif defined(__AVX__)
constexpr size_t kRegister = 32;
#else
constexpr size_t kRegister = 16;
#endif

// Compilers divide operations among registers, but GCC makes a comparison of each number; so these are divided here.
template <class V>
EDGEFORMER_INLINE V larger(V a, V b) {
  if constexpr (sizeof(V) <= kRegister)
    return a > b ? a : b;
  else
    return joined(larger(lower(a), lower(b)), larger(upper(a), upper(b)));
}
template <class V>
EDGEFORMER_INLINE V smaller(V a, V b) {
  if constexpr (sizeof(V) <= kRegister)
    return a < b ? a : b;
  else
    return joined(smaller(lower(a), lower(b)), smaller(upper(a), upper(b)));
}

// Halves are added until one number is left: lane i with lane i + 8, then i + 4, i + 2 and i + 1.
EDGEFORMER_INLINE float sum(Floats value) {
  const Eight eight = lower(value) + upper(value);
  const Four four = lower(eight) + upper(eight);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

EDGEFORMER_INLINE float largest(Floats value) {
  const Eight eight = larger(lower(value), upper(value));
  const Four four = larger(lower(eight), upper(eight));
  const float even = four[0] > four[2] ? four[0] : four[2], odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}

EDGEFORMER_INLINE Ints bits(Floats value) {
  Ints result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}
EDGEFORMER_INLINE Floats from_bits(Ints value) {
  Floats result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// The nearest integer, the even one of two that are equally near, of numbers between -2^22 and 2^22. Adding 1.5 * 2^23
// leaves no bits for the fraction, and the integer in the lowest bits of the sum.
constexpr float kRounder = 12582912.0f;
EDGEFORMER_INLINE Ints rounded(Floats value) { return bits(value + all(kRounder)) - 0x4B400000; }

// e^x, within 2 units in the last place; 0 below -87, and no more than e^88.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^x = 2^n e^r. ln 2 is subtracted in two parts, of which the first has few
// bits, so that n times it is exact (Cody and Waite 1980). e^r is a polynomial of degree 7 with the coefficients of
// Cephes (Moshier 1989). 2^n is added to the exponent's bits.
EDGEFORMER_INLINE Floats exponential(Floats x) {
  x = smaller(larger(x, all(-88.0f)), all(88.0f));
  const Ints vanishes = bits(x + all(87.0f)) >> 31;  // all bits of those below -87
  const Ints n = rounded(x * all(1.44269504f));
  const Floats whole = __builtin_convertvector(n, Floats);
  const Floats r = (x - whole * all(0.693359375f)) + whole * all(2.12194440e-4f);
  Floats p = all(1.9875691500e-4f);
  p = p * r + all(1.3981999507e-3f);
  p = p * r + all(8.3334519073e-3f);
  p = p * r + all(4.1665795894e-2f);
  p = p * r + all(1.6666665459e-1f);
  p = p * r + all(5.0000001201e-1f);
  p = p * r * r + r + all(1.0f);
  return from_bits((bits(p) + (n << 23)) & ~vanishes);
}

EDGEFORMER_INLINE Floats sigmoid(Floats x) { return all(1.0f) / (all(1.0f) + exponential(-x)); }

// tanh x = 2 sigmoid(2 x) - 1.
EDGEFORMER_INLINE Floats hyperbolic_tangent(Floats x) { return all(2.0f) * sigmoid(all(2.0f) * x) - all(1.0f); }

// The Gauss error function within 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26), odd in x.
EDGEFORMER_INLINE Floats error_function(Floats x) {
  const Floats size = larger(x, -x), t = all(1.0f) / (all(1.0f) + all(0.3275911f) * size);
  Floats p = all(1.061405429f);
  p = p * t + all(-1.453152027f);
  p = p * t + all(1.421413741f);
  p = p * t + all(-0.284496736f);
  p = p * t + all(0.254829592f);
  const Floats y = all(1.0f) - p * t * exponential(-(size * size));
  return from_bits(bits(y) ^ (bits(x) & INT32_MIN));
}

// ln x for x > 0, within 2 units in the last place: x = 2^n m with m between sqrt(1/2) and sqrt(2), and
// ln m = 2 artanh t with t = (m - 1) / (m + 1), whose series converges fast for |t| < 0.172.
static inline double logarithm(double x) {
  int n;
  double m = std::frexp(x, &n);
  if (m < 0.70710678118654752) m *= 2, n--;
  const double t = (m - 1) / (m + 1);
  double series = 0;
  for (int k = 21; k > 1; k -= 2) series = (series + 1.0 / k) * (t * t);
  return n * 0.69314718055994531 + 2 * t * (series + 1);
}

// x^y for x > 0: 2^n e^r with |r| <= ln 2 / 2, by the series of e^r.
static inline double power(double x, double y) {
  if (y == 0 || y == 1) return y == 0 ? 1 : x;
  const double all = y * logarithm(x), n = std::floor(all * 1.4426950408889634 + 0.5);
  if (!(n > -1000 && n < 1000)) return n > 0 ? HUGE_VAL : 0;
  const double r = all - n * 0.69314718055994531;
  double series = 1;
  for (int k = 14; k > 0; k--) series = 1 + series * r / k;
  return std::ldexp(series, static_cast<int>(n));
}

}  // namespace edgeformer
