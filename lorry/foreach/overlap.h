#pragma once

// Overlap of tensors that are written. A kernel computes the entries of a list in no order, so what one entry writes
// may share no memory with what another one reads or writes. Foreach operators, the scaling of norms and optimizer
// steps ask here; layout/layout.h decides for two tensors (share_elements), and how an entry's own operands may lie to
// its result is each operator's rule (ops::overlap).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::foreach {

/// Two tensors of a list with common elements, or, unless `certain`, with strides that do not tell.
struct Overlap {
  uint32_t first, second;  ///< entries; first < second
  bool certain;
};

/// The memory that the entries of a list write, in the order of addresses. Refers to the tensors it was made of.
class WrittenMemory {
 public:
  static constexpr uint32_t kNoEntry = UINT32_MAX;

  WrittenMemory() = default;
  /// One tensor an entry; undefined ones and those without elements are passed over. n log n.
  explicit WrittenMemory(std::span<const Tensor> tensors);

  /// Entries that write the same memory: a certain overlap if there is one.
  std::optional<Overlap> within() const;
  /// x, which entry `entry` reads (kNoEntry: every one), against what the other entries write. The overlap's entries
  /// are `entry` and the one that writes.
  std::optional<Overlap> with(const Tensor& x, uint32_t entry = kNoEntry) const;

 private:
  struct Range {
    uintptr_t begin, end;
    uintptr_t furthest_end;  ///< of this range and all before it
    uint32_t entry;
  };
  /// x against the first `count` ranges, from the last on while any of them can reach `begin`.
  std::optional<Overlap> among_first(size_t count, const Tensor& x, uintptr_t begin, uint32_t entry) const;

  std::span<const Tensor> tensors_;
  std::vector<Range> ranges_;
};

/// Of two findings the certain one, or the first.
std::optional<Overlap> worse(const std::optional<Overlap>& a, const std::optional<Overlap>& b);

/// Throws ShapeError if two tensors of a list that is written certainly share memory.
void require_no_overlap(std::span<const Tensor> written);
[[noreturn]] void refuse_overlap();

}  // namespace lorry::foreach
