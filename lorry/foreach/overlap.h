#pragma once

// Overlap between the entries of a list. A kernel computes them in no order, so memory that one entry writes must not
// be read or written by another. Foreach operators, the scaling of norms and optimizer steps check it here. Two tensors
// are compared by share_elements (layout/layout.h). What one entry's operands may share with its own result is the
// operator's rule (ops::operand_overlap).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::foreach {

/// Two tensors of a list that share elements or, if not `certain`, may share some: their strides do not decide it.
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
  /// x, which `entry` reads (kNoEntry: all entries do), against what the other entries write. Returns `entry` and the
  /// entry that writes.
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

/// The certain one of two overlaps, else the first.
std::optional<Overlap> worse(const std::optional<Overlap>& a, const std::optional<Overlap>& b);

/// Throws ShapeError if two tensors of a list that is written certainly share memory.
void require_no_overlap(std::span<const Tensor> written);
[[noreturn]] void refuse_overlap();

}  // namespace lorry::foreach
