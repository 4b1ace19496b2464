#include "lorry/kernels/cpu/scratch.h"

#include <memory>
#include <new>

namespace lorry::kernels::cpu {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(void* p) const { ::operator delete(p, kAlignment); }
};

struct Buffer {
  std::unique_ptr<void, Free> data;
  size_t bytes = 0;
};

}  // namespace

void* detail::scratch(Scratch purpose, size_t bytes) {
  static thread_local Buffer buffers[kScratchCount];
  Buffer& buffer = buffers[static_cast<int>(purpose)];
  if (buffer.bytes < bytes) {
    buffer.data.reset();
    buffer.bytes = 0;
    const size_t grown = bytes + bytes / 4;
    buffer.data.reset(::operator new(grown, kAlignment));
    buffer.bytes = grown;
  }
  return buffer.data.get();
}

}  // namespace lorry::kernels::cpu
