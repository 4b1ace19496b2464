#pragma once

// Fused steps of parameters whose states lie in pinned host memory. The states go through the device in chunks: while
// one is stepped, the next one comes and the last one goes back, each way by a copy engine of its own, so that a step
// takes as long as the link takes to carry its states one way. Large arrays are cut, at multiples of 256 elements. A
// parameter whose states take 256 KB or less together is stepped with them where they lie, since for many of them the
// launches of copies would take longer than the bytes.

#include <cstdint>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/kernels/optim.h"
#include "lorry/optim/rules/rule.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

class Streamed {
 public:
  /// Cuts up the list of a call. Takes device memory for three chunks. Throws OutOfMemory.
  explicit Streamed(const kernels::StepCall& call);
  /// Waits until the last step's states are in host memory again.
  ~Streamed();
  Streamed(const Streamed&) = delete;
  Streamed& operator=(const Streamed&) = delete;

  /// What steps need beside; writes no parameter and no state. The call is for the list that this was made for, some of
  /// whose addresses may have changed.
  void prepare(detail::HyperBlocks& blocks, const kernels::StepCall& call, const Stream& stream);
  /// The step. When `stream` has finished all states are in host memory again.
  void step(detail::HyperBlocks& blocks, const kernels::StepCall& call, const Stream& stream);

  /// What chunks take of the device's memory.
  int64_t device_bytes() const { return slots_.nbytes(); }

 private:
  static constexpr int kSlots = 3;
  /// Bytes between an array and its place in a slot.
  struct Copy {
    char* host;
    int64_t at, bytes;
  };
  /// An entry of a chunk: `count` elements of one of the whole list, from `first` on.
  struct Slice {
    uint32_t entry;
    int64_t first, count;
  };
  struct Chunk {
    kernels::List list;
    std::vector<Slice> slices;
    std::vector<Copy> copies;
    int64_t bytes = 0;
  };

  void cut(const kernels::List& whole);
  void place(Chunk& chunk, const kernels::List& whole, const Slice& slice) const;
  void update_addresses(const kernels::List& whole);
  static kernels::StepCall part(const kernels::StepCall& call, const Chunk& chunk);

  Device device_;
  Chunk direct_;  ///< of small arrays, where they lie
  std::vector<Chunk> chunks_;
  int64_t slot_bytes_ = 0;
  Tensor slots_;
  OwnedStream in_, out_;
  Event start_, out_done_, all_done_;
  std::vector<Event> loaded_, stepped_, written_back_;  ///< of each slot
};

}  // namespace lorry::optim
