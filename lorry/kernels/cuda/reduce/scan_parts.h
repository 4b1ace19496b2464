#pragma once

// How blocks that scan one part of a line each get the fold of the parts before theirs in one launch (Merrill and
// Garland 2016, "Single-pass parallel prefix scan with decoupled look-back"). A block stores the total of its part, and
// its first warp reads those before it. So that it reads few, 64 parts are a group, whose last block stores the group's
// total, and 64 groups are a range, whose last block stores the fold of the line up to there. Unlike in the paper,
// the order of operations depends on the number of parts only, not on which totals were there first.

#include "lorry/kernels/cuda/common/launch_slots.h"
#include "lorry/kernels/cuda/reduce/reduce_fold.h"

namespace lorry::kernels::cuda {

/// The fold of the cells of a warp's lanes up to this one.
template <Fold kFold, class Cell>
__device__ __forceinline__ Cell scan_warp(Cell cell) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const Cell before = __shfl_up_sync(0xffffffffu, cell, offset);
    if (lane >= offset) cell = fold_one<kFold>(before, cell);
  }
  return cell;
}

/// The fold of the lanes before this one, of what scan_warp returned.
template <Fold kFold, class Cell>
__device__ __forceinline__ Cell before_lane(Cell scanned) {
  const Cell before = __shfl_up_sync(0xffffffffu, scanned, 1);
  return threadIdx.x % 32 == 0 ? fold_identity<Cell>(kFold) : before;
}

/// The totals of the parts of all lines.
class PartTotals {
 public:
  explicit PartTotals(int64_t parts)
      : parts_(static_cast<int32_t>(parts)),
        groups_(static_cast<int32_t>(ceil_div(parts, kGroup))),
        ranges_(static_cast<int32_t>(ceil_div(groups_, kGroup))) {}

  __host__ __device__ int64_t per_line() const { return int64_t{parts_} + groups_ + ranges_; }
  void use(const Slots& slots) { slots_ = slots; }
  void addresses(auto& visit) const { slots_.addresses(visit); }

#ifdef __CUDACC__
  /// Stores the total of a part; returns the fold of the parts before it. The threads of a warp call it.
  template <Fold kFold, class Cell>
  __device__ Cell look_back(int64_t line, int part, Cell total) const {
    const int group = part / kGroup, in_group = part % kGroup, range = group / kGroup, in_range = group % kGroup;
    const int64_t parts = line * per_line(), groups = parts + parts_, ranges = groups + groups_;
    const bool stores = threadIdx.x % 32 == 0;
    if (stores) slots_.store(parts + part, total);

    Loaded<kFold, Cell> of_groups, of_parts;
    Cell before_range = fold_identity<Cell>(kFold);
    const auto load_groups = [&] {
      const bool all = of_groups.load(slots_, groups + group - in_range, in_range);
      return (range == 0 || slots_.load(ranges + range - 1, before_range)) && all;
    };
    bool groups_are_there = load_groups();  // on its way while the parts are waited for
    while (!of_parts.load(slots_, parts + part - in_group, in_group)) {
    }
    const Cell in_this_group = of_parts.fold();
    if (stores && in_group == kGroup - 1) slots_.store(groups + group, fold_one<kFold>(in_this_group, total));
    while (!groups_are_there) groups_are_there = load_groups();
    const Cell before = fold_one<kFold>(fold_one<kFold>(before_range, of_groups.fold()), in_this_group);
    if (stores && in_group == kGroup - 1 && in_range == kGroup - 1)
      slots_.store(ranges + range, fold_one<kFold>(before, total));
    return before;
  }
#endif

 private:
  static constexpr int kGroup = 64;  ///< parts of a group, and groups of a range

#ifdef __CUDACC__
  /// Up to 64 totals, two in each lane.
  template <Fold kFold, class Cell>
  struct Loaded {
    Cell cells[2];

    /// Whether they are all there for this lane.
    __device__ bool load(const Slots& slots, int64_t first, int count) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = static_cast<int>(threadIdx.x) % 32 + 32 * i;
        cells[i] = fold_identity<Cell>(kFold);
        if (at < count) all &= slots.load(first + at, cells[i]);
      }
      return all;
    }
    /// In all lanes.
    __device__ Cell fold() const {
      Cell cell = fold_one<kFold>(cells[0], cells[1]);
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2)
        cell = fold_one<kFold>(cell, __shfl_xor_sync(0xffffffffu, cell, offset));
      return cell;
    }
  };
#endif

  int32_t parts_, groups_, ranges_;
  Slots slots_;
};

}  // namespace lorry::kernels::cuda
