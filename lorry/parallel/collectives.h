#pragma once

// Collectives: every rank of the group calls the same one, with tensors of the same sizes and dtypes. All of them work
// in the order of the current stream, pass the door like operators, and take any strides (copying what is not
// contiguous). Over a list all tensors travel together, in one launch on a GPU.
//
// Dtypes: any, on the CPU; on GPUs those of NCCL (no i16, no f8). Sums of integers wrap around. 16-bit floats are
// joined in f32 and rounded, once for each two ranks that are joined. Booleans travel, and are not joined.
//
// Collectives have no gradients: tensors that need one are refused while gradients are recorded.
//
// All throw ParallelError if a rank has failed, makes another call or does not come (process_group.h); ShapeError,
// DTypeError and DeviceError for tensors that do not fit; GradError.

#include <memory>
#include <vector>

#include "lorry/parallel/process_group.h"
#include "lorry/parallel/reduction.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

/// Replaces x on every rank by all ranks' x, joined: the same bits on all of them.
const Tensor& all_reduce_(const Tensor& x, const ProcessGroup& group, Reduction reduction = Reduction::sum);
void all_reduce_(const std::vector<Tensor>& list, const ProcessGroup& group, Reduction reduction = Reduction::sum);
/// The same as a new tensor; x stays as it is.
Tensor all_reduce(const Tensor& x, const ProcessGroup& group, Reduction reduction = Reduction::sum);
/// The same into `out`, of as many elements.
const Tensor& all_reduce_out(const Tensor& out, const Tensor& x, const ProcessGroup& group,
                             Reduction reduction = Reduction::sum);

/// x of rank r as part r of a tensor [size, ...] of all ranks.
Tensor all_gather(const Tensor& x, const ProcessGroup& group);
/// The same into `out`: [size, *x.sizes()], or any sizes with as many elements.
const Tensor& all_gather_out(const Tensor& out, const Tensor& x, const ProcessGroup& group);

/// x: [size, ...]. Part r of all ranks' x, joined, on rank r: [...].
Tensor reduce_scatter(const Tensor& x, const ProcessGroup& group, Reduction reduction = Reduction::sum);
/// The same into `out`. x has size times as many elements.
const Tensor& reduce_scatter_out(const Tensor& out, const Tensor& x, const ProcessGroup& group,
                                 Reduction reduction = Reduction::sum);

/// x: [size, ...]. Part r of the result is this rank's part of rank r's x.
Tensor all_to_all(const Tensor& x, const ProcessGroup& group);

/// Replaces x on every rank by that of rank `root`.
const Tensor& broadcast_(const Tensor& x, const ProcessGroup& group, int root = 0);
void broadcast_(const std::vector<Tensor>& list, const ProcessGroup& group, int root = 0);

/// Sends x to rank `to`, which receives it. Throws ValueError for this rank, or one that is not in the group.
void send(const Tensor& x, const ProcessGroup& group, int to);
/// Replaces x by what rank `from` sends: of the same sizes and dtype. Throws as send does.
const Tensor& receive_(const Tensor& x, const ProcessGroup& group, int from);

/// Waits until all ranks have come here.
void barrier(const ProcessGroup& group);

class Pending;

/// A collective that was begun, and goes on beside what this thread does. What it reads and writes stays in its place
/// until wait().
class Begun {
 public:
  Begun() = default;
  /// Waits for it: on a GPU the current stream does, not the host. Once; later calls do nothing.
  void wait();
  /// The same, and may be called again: on another stream.
  void wait_again() const;
  bool is_done() const;

 private:
  friend struct Begin;
  std::shared_ptr<Pending> pending_;
  std::vector<Tensor> list_;
};

// These begin calls after the work enqueued on the current stream so far. Their tensors are contiguous. Sums are in the
// transport's order, also in a reproducible group.

/// Begins all_reduce_.
Begun begin_all_reduce(const std::vector<Tensor>& list, const ProcessGroup& group,
                       Reduction reduction = Reduction::sum);
/// Begins reduce_scatter_out.
Begun begin_reduce_scatter(const Tensor& out, const Tensor& x, const ProcessGroup& group,
                           Reduction reduction = Reduction::sum);
/// Begins all_gather_out. x may be the own part of out.
Begun begin_all_gather(const Tensor& out, const Tensor& x, const ProcessGroup& group);

}  // namespace lorry::parallel
