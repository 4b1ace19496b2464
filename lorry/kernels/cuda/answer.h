#pragma once

// Numbers that the host waits for: kernels write them straight into host memory, which saves a copy, and the host reads them when
// the stream is done.

#include <cstdint>

#include "lorry/device/stream.h"
#include "lorry/memory/memory.h"

namespace lorry::kernels::cuda {

class Answer {
 public:
  static constexpr int kWords = 2048;

  Answer() : words_(static_cast<int64_t*>(memory::allocate_pinned(kBytes))) {}
  ~Answer() { memory::release_pinned(words_, kBytes); }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  /// The address, for kernels and the host alike.
  int64_t* words() const { return words_; }
  /// Waits for the stream; then what kernels wrote is there.
  const int64_t* wait(Stream stream) const {
    stream.synchronize();
    return words_;
  }

 private:
  static constexpr int64_t kBytes = kWords * static_cast<int64_t>(sizeof(int64_t));
  int64_t* words_;
};

}  // namespace lorry::kernels::cuda
