// Memory without exceptions: what cannot be had is an error message, not an abort.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace edgeformer {

constexpr size_t kCacheLine = 64;
constexpr int kLanes = 16;  // numbers of a vector; see vectors.h

// What kernels call of headers that other files include, too, is a part of the caller: otherwise, the linker might keep the
// copy of the highest instruction set for all.
#define EDGEFORMER_INLINE inline __attribute__((always_inline))

EDGEFORMER_INLINE int64_t padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// Where a number is if each head, of some width, is padded to whole vectors; no heads if the width is 0.
EDGEFORMER_INLINE int64_t spread(int64_t index, int64_t head) { return head ? index / head * padded(head) + index % head : index; }

// Operations that other threads see as one. Clang's for ARM would call functions that Android's C library lacks.
#if defined(__aarch64__) && defined(__clang__)
#define EDGEFORMER_ATOMIC __attribute__((target("no-outline-atomics"), noinline))  // callers would have it outlined
#else
#define EDGEFORMER_ATOMIC
#endif
template <class T>
EDGEFORMER_ATOMIC inline T exchange(T* place, T value) {
  return __atomic_exchange_n(place, value, __ATOMIC_ACQ_REL);
}
EDGEFORMER_ATOMIC inline int64_t add(int64_t* place, int64_t value) { return __atomic_add_fetch(place, value, __ATOMIC_ACQ_REL); }

// Objects without C++'s runtime library: `new` would need it. Null if there is not enough memory.
template <class T>
T* create(int64_t count = 1) {
  T* objects = static_cast<T*>(std::malloc(static_cast<size_t>(count) * sizeof(T)));
  for (int64_t i = 0; objects && i < count; i++) new (static_cast<void*>(objects + i)) T();
  return objects;
}

template <class T>
void destroy(T* objects, int64_t count = 1) {
  for (int64_t i = 0; objects && i < count; i++) objects[i].~T();
  std::free(static_cast<void*>(objects));
}

// An array that begins at a cache line. It is not initialized, and does not copy.
template <class T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(memory_); }

  // Makes room for some values. What the array held is lost if it has to grow. Returns whether there is room.
  bool reserve(int64_t count) {
    if (count <= capacity_) return true;
    std::free(memory_);
    memory_ = nullptr;
    data_ = nullptr;
    capacity_ = 0;
    if (static_cast<uint64_t>(count) > SIZE_MAX / 2 / sizeof(T)) return false;
    if (!(memory_ = std::malloc(static_cast<size_t>(count) * sizeof(T) + 2 * kCacheLine))) return false;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_);
    data_ = reinterpret_cast<T*>((begin + kCacheLine - 1) & ~uintptr_t(kCacheLine - 1));
    capacity_ = count;
    return true;
  }

  bool zeros(int64_t count) {
    if (!reserve(count)) return false;
    if (count) std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
    return true;
  }

  void swap(Array& other) {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
  }

  EDGEFORMER_INLINE T* data() { return data_; }
  EDGEFORMER_INLINE const T* data() const { return data_; }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(T)); }
  EDGEFORMER_INLINE T& operator[](int64_t index) { return data_[index]; }
  EDGEFORMER_INLINE const T& operator[](int64_t index) const { return data_[index]; }

 private:
  void* memory_ = nullptr;
  T* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace edgeformer
