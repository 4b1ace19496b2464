#pragma once

// Fused steps of parameters whose states lie in pinned host memory. The states pass through the device in chunks. While
// one chunk is stepped, the next one is copied to the device and the last one back, by two copy engines; so a step
// takes as long as the link needs to carry the states one way. Large states are cut at multiples of 256 elements. If
// the states of a parameter have 256 KB or less together, the kernel reads and writes them in host memory: launching
// copies would take longer.

#include <cstdint>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/kernels/optim.h"
#include "lorry/optim/family.h"
#include "lorry/optim/rules/rule.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

class StreamedStep final : public FamilyStep {
 public:
  /// Divides the list of a call into chunks. Takes device memory for three of them. Throws OutOfMemory.
  explicit StreamedStep(const kernels::StepCall& call);
  /// Waits until the last step's states are in host memory again.
  ~StreamedStep() override;

  void prepare(const Family& family, const StepContext& context, const kernels::StepCall& call,
               const Stream& stream) override;
  /// When `stream` has finished, all states are in host memory again.
  void run(const Family& family, const kernels::StepCall& call, const Stream& stream) override;
  int64_t chunk_bytes() const override { return slots_.nbytes(); }

 private:
  static constexpr int kSlots = 3;
  /// A copy of bytes between a state in host memory and a slot.
  struct Copy {
    char* host;
    int64_t slot_offset, bytes;
  };
  /// An entry of a chunk: `count` elements of an entry of the whole list, from `first` on.
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
  void add_slice(Chunk& chunk, const kernels::List& whole, const Slice& slice) const;
  void point_into_slots(int arrays);
  void update_addresses(const kernels::List& whole);
  static kernels::StepCall part(const kernels::StepCall& call, const Chunk& chunk);

  Device device_, host_;
  Chunk direct_;  ///< parameters whose states stay in host memory
  std::vector<Chunk> chunks_;
  int64_t slot_bytes_ = 0;
  Tensor slots_;  ///< device memory for kSlots chunks, used in turn
  OwnedStream in_, out_;
  Event start_, out_done_, all_done_;
  std::vector<Event> loaded_, stepped_, written_back_;  ///< of each slot
};

}  // namespace lorry::optim
