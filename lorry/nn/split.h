#pragma once

// How a model is split over processes that have a part of its large parameters each (parallel/tensor_parallel.h makes
// splits). Column-parallel layers compute a part of the outputs, row-parallel ones a partial sum of all outputs:
// Shoeybi et al., "Megatron-LM" (2019), section 3.

#include <cstdint>
#include <memory>
#include <string>

#include "lorry/tensor/tensor.h"

namespace lorry::nn {

class Split {
 public:
  virtual ~Split() = default;
  virtual int64_t size() const = 0;
  virtual int64_t rank() const = 0;

  /// x, the same on every rank, for layers that each rank has a part of; nothing else may use the result. Its gradient
  /// is the sum over the ranks.
  virtual Tensor enter(const Tensor& x) const = 0;
  /// The sum of x over the ranks, on all of them. Its gradient is that of x on each.
  virtual Tensor leave(const Tensor& x) const = 0;
  /// The x of every rank: [size, ...]. No gradient.
  virtual Tensor gather(const Tensor& x) const = 0;
  /// The mean cross entropy in f32 (f64 for f64). logits: [n, own], of `columns` in all those from `first` on; targets:
  /// [n] i64, of all columns; those that are `ignore_index` do not count. Throws IndexError for others, as
  /// cross_entropy does.
  virtual Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t first, int64_t columns,
                               int64_t ignore_index) const = 0;
  /// Throws unless all ranks have the same text.
  virtual void require_same(const std::string& what, const std::string& own) const = 0;
};

/// Which part of a parameter of a whole model each rank has.
struct SplitRule {
  int dim = 0;         ///< that is split
  int64_t blocks = 1;  ///< of it, each of which is split: 3 for queries, keys and values in one
};

/// Where what indexes all of a dimension lies in a rank's part of it.
struct OwnIndices {
  Tensor index;   ///< into the part; 0 for what another rank has, -1 for what nobody has
  Tensor is_own;  ///< bool

  /// all: whole numbers. The part: `count` of `whole` from `first` on.
  OwnIndices(const Tensor& all, int64_t first, int64_t count, int64_t whole);
};

/// A rank's part of `whole`. Where the size is no multiple of the ranks, the last parts are filled up with zeros.
Tensor part_of(const Tensor& whole, const SplitRule& rule, const Split& split);
/// The whole of the parts of all ranks; sizes: its sizes. Every rank calls it.
Tensor whole_of(const Tensor& part, const Dims& sizes, const SplitRule& rule, const Split& split);

}  // namespace lorry::nn
