#pragma once

// Counters with which a block of a launch finds out that it is the last one to finish, without another launch or fill.
// They are the stream's own (stream_memory.h) where it has some, and fresh ones otherwise. They are zero between
// kernels: the last block resets them, and a launch runs completely or not at all.

#include <cstdint>
#include <optional>

#include "lorry/kernels/cuda/common/last_block.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

class Tickets {
 public:
  /// `count` counters for one launch on the stream.
  Tickets(int64_t count, Stream stream);
  uint32_t* data() const { return data_; }

 private:
  std::optional<Scratch> own_;
  uint32_t* data_;
};

}  // namespace lorry::kernels::cuda
