#pragma once

// Temporary memory of CPU kernels: one growing buffer per purpose and thread, aligned for vectors and never released
// before the thread ends, so that a training step allocates none. The next request for the same purpose overwrites the
// contents.

#include <cstddef>
#include <cstdint>

namespace lorry::kernels::cpu {

enum class Scratch : uint8_t { packed_a, packed_b, tile, attention, rows, blocks, chain, library };
inline constexpr int kScratchCount = 8;

namespace detail {
void* scratch(Scratch purpose, size_t bytes);
}

/// Room for `count` values of T on the calling thread, aligned to 64 bytes. Throws std::bad_alloc.
template <class T>
T* scratch(Scratch purpose, int64_t count) {
  return static_cast<T*>(detail::scratch(purpose, static_cast<size_t>(count) * sizeof(T)));
}

}  // namespace lorry::kernels::cpu
