#pragma once

// Data parallel training: every rank has the whole model and a part of the batch; gradients are averaged over ranks.
//
//   parallel::DataParallel ranks(model.named_parameters(), parallel::join());
//   for (...) {
//     (loss(own part of the batch) * ranks.share()).backward();   // gradients travel while backward goes on
//     ranks.finish();                                             // they are the same on every rank now
//     optimizer.step();
//     optimizer.zero_grad();
//   }
//
// Gradients lie in buckets: backward computes those of linear layers straight into them, others are copied there. A
// bucket is sent when its last gradient has arrived and the buckets before it are on their way; its order is that in
// which gradients arrived in the first step on rank 0. What other libraries call DDP: Li et al., "PyTorch Distributed:
// Experiences on Accelerating Data Parallel Training" (VLDB 2020).

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lorry/parallel/collectives.h"
#include "lorry/parallel/process_group.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

struct DataParallelOptions {
  /// Bytes of a bucket, at least; a parameter is never split. Positive. The first is an eighth of that, so that sending
  /// begins early.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// In which the sums are computed; none: in the gradients' own. f32 for 16-bit gradients costs twice the bytes on the
  /// way, and a copy.
  std::optional<DType> reduce_in = {};
};

class DataParallel {
 public:
  /// Gives every rank the parameters of rank 0, and takes over where their gradients lie: present ones are released.
  /// Parameters that need no gradient stay as they are on rank 0. Throws ParallelError if the ranks have different
  /// names, sizes or dtypes; ValueError for no parameters, or one that is listed twice; DeviceError for parameters on
  /// different devices.
  DataParallel(std::vector<std::pair<std::string, Tensor>> parameters, const ProcessGroup& group,
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const ProcessGroup& group() const { return group_; }
  /// What a rank's loss counts in the mean over all ranks: 1 / size.
  double share() const { return 1.0 / group_.size(); }

  /// Ends the step's backward: sends what has not been sent, and waits for all sums (on a GPU the current stream does).
  /// A parameter whose gradient this rank did not produce counts as zeros, and has the others' sum. Throws
  /// ParallelError.
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

  /// Bytes that a rank sends in a step, for the bus bandwidth: the sum over buckets.
  int64_t bytes() const;
  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

 private:
  struct Parameter {
    std::string name;
    Tensor tensor;
    int64_t offset = 0;  ///< of its gradient in `memory_`, in elements
    size_t bucket = 0;
    bool has_arrived = false;
  };
  struct Bucket {
    Tensor elements;  ///< contiguous: its part of the memory
    int64_t missing = 0, parameters = 0;
    Tensor in_other_dtype = {};  ///< while it travels so
    Begun begun = {};
  };
  /// Lays the gradients out in this order, bringing along those that there are.
  void lay_out(const std::vector<size_t>& order);
  /// Where the gradient of a parameter lies.
  Tensor place_of(const Parameter& x) const;
  void arrived(size_t parameter);
  void send_ready();
  void send(Bucket& bucket);
  void reorder();

  const ProcessGroup group_;
  const DataParallelOptions options_;
  std::vector<Parameter> parameters_;
  std::vector<size_t> order_;   ///< in which they lie
  std::vector<Tensor> memory_;  ///< one for each dtype
  std::vector<Bucket> buckets_;
  size_t next_ = 0;               ///< bucket to send
  std::vector<size_t> arrivals_;  ///< of the first step
  bool sends_ = true, is_ordered_ = false;
};

}  // namespace lorry::parallel
