#include "lorry/kernels/cpu/common/scratch.h"

#include <new>

namespace lorry::kernels::cpu {
namespace {

constexpr std::align_val_t kAlignment{64};

/// It has no destructor, because thread-local objects that are destroyed later may still compute.
struct Buffer {
  void* data;
  size_t bytes;

  void resize(size_t to) {
    ::operator delete(data, kAlignment);
    data = nullptr;
    bytes = 0;
    if (to == 0) return;
    data = ::operator new(to, kAlignment);
    bytes = to;
  }
};

constinit thread_local Buffer t_buffers[kScratchCount] = {};

/// Frees a thread's buffers when it ends. Buffers made after that, while its last objects are destroyed, leak.
struct Closer {
  ~Closer() {
    for (Buffer& buffer : t_buffers) buffer.resize(0);
  }
};

}  // namespace

void* detail::scratch(Scratch purpose, size_t bytes) {
  Buffer& buffer = t_buffers[static_cast<int>(purpose)];
  if (buffer.bytes < bytes) {
    static thread_local Closer closer;
    buffer.resize(bytes + bytes / 4);
  }
  return buffer.data;
}

}  // namespace lorry::kernels::cpu
