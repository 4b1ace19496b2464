#pragma once

// One size of a BucketSet: the function at this size, over the static inputs, run in one of four executions.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lorry/memory/allocate.h"
#include "lorry/replay/bucket_options.h"

namespace lorry::replay::detail {

/// The function of a set, which is told the size that it runs at.
class SizedFunction {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>, int64_t size)>;
  SizedFunction(Function function, const BucketOptions& options)
      : function_(std::move(function)), choose_forward_(options.choose_forward) {}

  std::vector<Tensor> operator()(std::span<const Tensor> arguments, int64_t size) const {
    return function_(arguments, size);
  }
  /// Calls f, which may run the function at this size, between the calls of choose_forward.
  template <class F>
  auto at(int64_t size, const F& f) const {
    if (!choose_forward_) return f();
    try {
      choose_forward_(size);
      auto result = f();
      choose_forward_(0);
      return result;
    } catch (...) {
      choose_forward_(0);
      throw;
    }
  }

 private:
  const Function function_;
  const std::function<void(int64_t)> choose_forward_;
};

class Bucket {
 public:
  /// function and options outlive the bucket.
  Bucket(const SizedFunction& function, const BucketOptions& options, Device device, int64_t size,
         std::vector<Tensor> inputs);
  Bucket(const Bucket&) = delete;
  Bucket& operator=(const Bucket&) = delete;

  /// Sets the execution to the fastest that can be captured, as the policy measures it. Graphs are made in a pool that
  /// ends with the call.
  void measure();
  /// Compiles the function, if the execution says so.
  void warm_up();
  /// Captures a graph in this pool. Throws what Graph throws.
  void capture(std::shared_ptr<memory::Pool> pool);
  void drop_graph();
  /// Drops a graph that would capture the function again in its next replay: that is work for capture().
  void drop_outdated();
  /// The results, in memory that the next run overwrites. Without a graph the function runs eagerly or compiled.
  std::vector<Tensor> run();
  void count(int64_t batch);

  bool wants_graph() const { return has_graph(stats_.execution); }
  bool is_captured() const { return graph_.has_value(); }
  /// Of the graph, or the last one that it had; 0 before the first.
  int64_t bytes() const { return bytes_; }
  BucketStats stats() const;

  bool is_ready = false;  ///< measured, warm, and captured if there is memory for it
  // Of GraphMemory:
  int64_t use = 0;       ///< calls, old ones counting less
  int64_t next_try = 0;  ///< of `use`: when to try again to capture it

 private:
  std::vector<Tensor> call();
  void set_execution(Execution execution);
  /// Microseconds a call in this execution; 0 if it cannot be captured.
  double time_of(Execution execution);

  const SizedFunction& function_;
  const BucketOptions& options_;
  const Device device_;
  const std::vector<Tensor> inputs_;
  std::unique_ptr<lorry::detail::CompiledFunction> compiled_;
  std::optional<Graph> graph_;
  int64_t bytes_ = 0;
  BucketStats stats_;
};

}  // namespace lorry::replay::detail
