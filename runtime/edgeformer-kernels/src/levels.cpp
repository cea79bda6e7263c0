#include "model.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__wasm_relaxed_simd__)
#include <wasm_simd128.h>
#endif

namespace edgeformer {

#if defined(__x86_64__)
namespace avx512_vnni { extern const Kernels kernels; }
namespace avx_vnni { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
#elif defined(__aarch64__)
namespace neon_dot { extern const Kernels kernels; }
namespace neon { extern const Kernels kernels; }
#elif defined(__wasm_relaxed_simd__)
namespace relaxed_unsigned { extern const Kernels kernels; }
namespace relaxed_signed { extern const Kernels kernels; }
#elif defined(__wasm_simd128__)
namespace simd128 { extern const Kernels kernels; }
#endif
namespace portable { extern const Kernels kernels; }

namespace {

constexpr int kMostLevels = 4;

#if defined(__x86_64__)
// The processor is asked itself: `__builtin_cpu_supports` needs the compiler's runtime library, and Zig's says no to all.
struct Processor {
  bool avx2 = false, avx_vnni = false, avx512_vnni = false;

  Processor() {
    constexpr uint32_t kSavesState = 1u << 27, kAvx2 = 1u << 5, kAvxVnni = 1u << 4, kAvx512Vnni = 1u << 11;
    constexpr uint32_t kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // foundation, DQ, BW, VL
    constexpr uint32_t kWide = 0x6, kWidest = 0xE6;                         // registers of 256 and of 512 bits
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kSavesState)) return;
    uint32_t saved, rest;  // what the operating system saves when it changes from one thread to another
    __asm__("xgetbv" : "=a"(saved), "=d"(rest) : "c"(0));
    if ((saved & kWide) != kWide || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    avx2 = b & kAvx2;
    avx512_vnni = (saved & kWidest) == kWidest && (b & kAvx512) == kAvx512 && (c & kAvx512Vnni);
    avx_vnni = avx2 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni);
  }
};
#elif defined(__wasm_relaxed_simd__)
// What the host's dot product of four bytes with four inputs is: the sums may saturate, and inputs have a sign or not.
int32_t relaxed_dot(int8_t weight, uint8_t input) {
  const volatile int8_t weights = weight;  // so that the host computes it, not the compiler
  return wasm_i32x4_extract_lane(
      wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(weights), wasm_u8x16_splat(input), wasm_i32x4_splat(1)), 0);
}
#endif

struct Levels {
  const Kernels* level[kMostLevels] = {};
  int count = 0;
  char names[64] = "";

  void add(const Kernels& kernels) {
    if (count) std::strcat(names, " ");
    std::strcat(names, kernels.name);
    level[count++] = &kernels;
  }

  Levels() {
#if defined(__x86_64__)
    const Processor processor;
    if (processor.avx512_vnni) add(avx512_vnni::kernels);
    if (processor.avx_vnni) add(avx_vnni::kernels);
    if (processor.avx2) add(avx2::kernels);
#elif defined(__aarch64__)
#if defined(__linux__)
    if (getauxval(AT_HWCAP) >> 20 & 1) add(neon_dot::kernels);
#else
    add(neon_dot::kernels);  // every processor of Apple has it
#endif
    add(neon::kernels);
#elif defined(__wasm_relaxed_simd__)
    const int32_t largest = relaxed_dot(127, 255), smallest = relaxed_dot(-128, 255), middle = relaxed_dot(-128, 128);
    if (largest == 1 + 4 * 127 * 255 && smallest == 1 - 4 * 128 * 255) add(relaxed_unsigned::kernels);
    if (largest == 1 - 4 * 127 && smallest == 1 + 4 * 128 && middle == 1 + 4 * 128 * 128) add(relaxed_signed::kernels);
#elif defined(__wasm_simd128__)
    add(simd128::kernels);
#endif
#if !defined(EDGEFORMER_NOT_PORTABLE)
    add(portable::kernels);
#endif
  }
};

const Levels kLevels;  // found when the library is loaded

}  // namespace

const Kernels* find_kernels(const char* name) {
  for (int i = 0; i < kLevels.count; i++)
    if (!name || !std::strcmp(name, kLevels.level[i]->name)) return kLevels.level[i];
  return nullptr;
}

const char* level_names() { return kLevels.names; }

}  // namespace edgeformer
