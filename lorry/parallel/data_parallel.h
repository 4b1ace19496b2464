#pragma once

// Data parallel training: every rank has the whole model and a part of the batch; gradients are averaged over ranks.
//
//   parallel::DataParallel ranks(model.named_parameters(), parallel::join());
//   optim::AdamW optimizer(ranks.own_parts(model.named_parameters()), {});
//   for (...) {
//     (loss(own part of the batch) * ranks.share()).backward();   // gradients travel while backward goes on
//     ranks.step(optimizer, {.max_norm = 1});
//     ranks.zero_grad();
//   }
//
// With `shard` a rank steps an equal part of the parameters, whatever their sizes, and has the states of that part
// alone: stage 1 of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
// SC 2020, section 5). A rank then gets the sum of its own gradients only, and after the step the parameters of the
// others, while the next forward begins.
//
// Gradients lie in buckets: backward computes those of linear layers straight into them, others are copied there, all
// of a bucket in one launch. A bucket is sent when its last gradient has arrived and the buckets before it are on their
// way; its order is that in which gradients arrived in the first step on rank 0. What other libraries call DDP: Li et
// al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (VLDB 2020).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lorry/optim/optimizer.h"
#include "lorry/parallel/bucket_plan.h"
#include "lorry/parallel/collectives.h"
#include "lorry/parallel/process_group.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

struct DataParallelOptions {
  /// Bytes of a bucket, at least; a parameter is never split. Positive. The first and the last are an eighth of that,
  /// so that sending begins early and ends soon. Large buckets use links better, and fewer of them disturb what is
  /// computed beside them.
  int64_t bucket_bytes = int64_t{64} << 20;
  /// In which the sums are computed; none: in the gradients' own. f32 for 16-bit gradients costs twice the bytes on the
  /// way, and a copy.
  std::optional<DType> reduce_in = {};
  /// Every rank steps a part of the parameters. They move to memory of their own, contiguous.
  bool shard = false;
};

class Shards;

class DataParallel {
 public:
  /// Gives every rank the parameters of rank 0, and takes over where their gradients lie: present ones are released.
  /// Parameters that need no gradient stay as they are on rank 0. Throws ParallelError if the ranks have different
  /// names, sizes, dtypes or options; ValueError for no parameters, one that is listed twice, or with `shard` one that
  /// is 0-d; DeviceError for parameters on different devices.
  DataParallel(std::vector<std::pair<std::string, Tensor>> parameters, const ProcessGroup& group,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const ProcessGroup& group() const { return group_; }
  /// What a rank's loss counts in the mean over all ranks: 1 / size.
  double share() const { return 1.0 / group_.size(); }

  // ---- an optimizer's view ------------------------------------------------------------------------------------------

  /// What an optimizer on this rank steps for these parameters, under their names: themselves, or with `shard` the
  /// elements of each that this rank owns, 1-d and some of them empty. Throws ValueError for one that is not among the
  /// parameters of this object.
  std::vector<optim::NamedTensor> own_parts(const std::vector<optim::NamedTensor>& parameters) const;
  /// finish(), unless it was called since the last backward and step of this optimizer, and a step of an optimizer of
  /// own_parts(): norm, clip, unscale and skip are those of the gradients of all
  /// ranks. Returns the norm as Optimizer::step does. With `shard` the parameters of other ranks arrive while the
  /// program goes on: calls of this thread that use one wait for it; other threads call wait() first. Throws
  /// ParallelError, and what Optimizer::step throws.
  Tensor step(optim::Optimizer& optimizer, const optim::StepOptions& options = {});
  /// Releases the gradients of all parameters, also of a step that is given up: every rank gives it up, in the same
  /// place.
  void zero_grad();
  /// Waits until the last step's parameters of all ranks are there.
  void wait();

  /// What this rank owns of a parameter; none for another tensor, and without `shard`.
  std::optional<OwnRange> own_range(std::string_view name) const;
  /// Where an entry of a state_dict() of the own parts lies in that of an optimizer of the whole parameters.
  struct StatePlace {
    Dims sizes;           ///< of the whole entry
    int64_t first = 0;    ///< element of it with which the own one begins
    bool is_own = false;  ///< whether this rank alone has these elements
  };
  std::map<std::string, StatePlace> places_of_states(const optim::TensorMap& own) const;
  /// What of a state_dict() of an optimizer of the whole parameters belongs to own_parts(). Throws ShapeError for one
  /// of another shape than its parameter.
  optim::TensorMap own_state(const optim::TensorMap& whole) const;

  // ---- its parts ----------------------------------------------------------------------------------------------------

  /// Ends the step's backward: sends what has not been sent, and waits for all sums (on a GPU the current stream does).
  /// A parameter whose gradient this rank did not produce counts as zeros, and has the others' sum. With `shard` the
  /// sums are those of own_parts(). Throws ParallelError.
  void finish();

  /// For ranks whose batches end at different times: whether any rank has a batch left. Every rank calls it before each
  /// step, also those that have none: they call finish() without a backward and so count as zeros. Returns how many
  /// ranks have one; then a rank's share is one of that number instead of share(). Costs a message to rank 0.
  int ranks_with_batch(bool has_batch) const;

  /// Backward without sending, for a scope: gradients add up in their places until a backward outside of it.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(DataParallel& of) : of_(of), before_(std::exchange(of.sends_, false)) {}
    ~NoSync() { of_.sends_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& of_;
    const bool before_;
  };

  bool is_sharded() const { return shards_ != nullptr; }
  /// Bytes of gradients that are summed in a step: those of all buckets.
  int64_t bytes() const;
  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

 private:
  struct Parameter {
    std::string name;
    Tensor tensor;
    Tensor place = {};  ///< where its gradient lies when it is sent
    bool has_arrived = false;
  };
  struct Bucket {
    Tensor elements;                   ///< contiguous: its part of the memory
    int64_t missing = 0;               ///< gradients that have not arrived
    std::vector<size_t> members = {};  ///< its parameters
    Tensor own = {};                   ///< with shards: where the own part of the sum comes
    Tensor in_other_dtype = {};        ///< what travels, if that is in another dtype
    Tensor own_in_other_dtype = {};
    Begun begun = {};
  };
  void give_parameters_of_rank_0(const std::vector<std::pair<std::string, Tensor>>& parameters) const;
  /// Lays the gradients out in this order, bringing along those that there are.
  void lay_out(const std::vector<size_t>& order);
  std::vector<Tensor> tensors() const;
  void begins(size_t parameter) const;
  void arrived(size_t parameter);
  void send_ready();
  void collect(const Bucket& bucket) const;
  void send(Bucket& bucket);
  void receive(Bucket& bucket);
  void reorder();
  /// The number of the parameter with this name.
  std::optional<size_t> find(std::string_view name) const;
  Tensor sum_of_squares(const std::vector<Tensor>& own) const;
  /// Makes everything ready for the next step.
  void begin_step();
  Tensor step_own(optim::Optimizer& optimizer, const optim::StepOptions& options);

  const ProcessGroup group_;
  const DataParallelOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<size_t> order_;  ///< in which they lie
  BucketPlan plan_;
  std::vector<Tensor> memory_;  ///< of the plan
  std::vector<Bucket> buckets_;
  std::unique_ptr<Shards> shards_;
  size_t next_ = 0;                    ///< bucket to send
  std::vector<size_t> arrival_order_;  ///< of gradients, in the first step
  bool sends_ = true, is_ordered_ = false;
  bool is_finished_ = false;                      ///< the step's sums are there
  std::vector<const optim::Optimizer*> stepped_;  ///< by them
};

}  // namespace lorry::parallel
