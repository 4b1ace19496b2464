#pragma once

// The parameters of data parallel training in memory of their own, of which each rank owns an equal part of every
// bucket: it alone steps that part.

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lorry/optim/optimizer.h"
#include "lorry/parallel/arrivals.h"
#include "lorry/parallel/bucket_plan.h"
#include "lorry/parallel/process_group.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

class Shards {
 public:
  /// Moves the parameters into memory laid out by the plan, which outlives this.
  Shards(const BucketPlan& plan, const std::vector<Tensor>& parameters, ProcessGroup group);

  /// The elements of a parameter that a rank owns.
  OwnRange part_of(size_t parameter, int rank) const;
  /// The own part of a parameter as a leaf of an optimizer: 1-d, perhaps empty. Its gradient is set by
  /// set_gradients().
  const Tensor& own(size_t parameter) const { return own_[parameter]; }
  /// The parameter that this is the own part of; the number of parameters if there is none.
  size_t parameter_of(const Tensor& own) const;

  /// Whether a parameter still lies in this memory.
  bool holds(const Tensor& parameter) const;

  /// Where the own part of a bucket's gradients lies, once it is summed.
  Tensor own_gradient(size_t bucket) const;
  /// Makes own_gradients() the gradients of the own parts that have none.
  void set_gradients() const;
  /// All own gradients, without the parameters' borders: a tensor for each dtype.
  const std::vector<Tensor>& own_gradients() const { return own_gradients_; }

  /// Begins to bring all ranks' parts together, in the order of a forward. Calls of this thread that use a parameter
  /// wait for it.
  void gather();
  /// Waits for all parameters.
  void wait() { arrivals_.wait(); }

 private:
  /// Elements of a bucket that a rank owns: [begin, end) of its memory.
  std::pair<int64_t, int64_t> run_of(size_t bucket, int rank) const;

  const BucketPlan& plan_;
  const ProcessGroup group_;
  std::vector<int64_t> counts_;                 ///< of elements of each parameter
  std::vector<Tensor> values_, own_gradients_;  ///< one for each memory of the plan
  std::vector<Tensor> runs_, own_runs_;         ///< of the values: each bucket, and the own part of it
  std::vector<Tensor> own_;
  std::unordered_map<const void*, size_t> numbers_;  ///< of the own parts, by their nodes
  Arrivals arrivals_;
};

}  // namespace lorry::parallel
