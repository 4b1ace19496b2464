#pragma once

// Numbers that the host reads back. Kernels write them directly to host memory, which saves a copy; the host reads them
// when the stream is done.

#include <cstdint>
#include <new>

#include "lorry/base/waits.h"
#include "lorry/device/stream.h"
#include "lorry/memory/allocate.h"

namespace lorry::kernels::cuda {

class HostReadback {
 public:
  static constexpr int kWords = 2048;

  /// stream: the stream of the kernels that write.
  explicit HostReadback(Stream stream)
      : stream_(stream), words_(static_cast<int64_t*>(memory::allocate_pinned(kBytes))) {}
  /// If wait() was not called, for example because a launch threw, kernels may still write: the memory is reused only
  /// when the stream is done.
  ~HostReadback() {
    try {
      if (!waited_) memory::record_pinned(words_, stream_);
      memory::release_pinned(words_, kBytes);
    } catch (const std::bad_alloc&) {  // the words leak, which does no harm
    }
  }
  HostReadback(const HostReadback&) = delete;
  HostReadback& operator=(const HostReadback&) = delete;
  /// The address for kernels and for the host.
  int64_t* words() const { return words_; }
  /// Waits for the stream, and returns what the kernels wrote.
  const int64_t* wait() {
    const waits::Reason reason(waits::Wait::size);
    stream_.synchronize();
    waited_ = true;
    return words_;
  }

 private:
  static constexpr int64_t kBytes = kWords * static_cast<int64_t>(sizeof(int64_t));
  const Stream stream_;
  int64_t* const words_;
  bool waited_ = false;
};

}  // namespace lorry::kernels::cuda
