#pragma once

// Deferred calls: how a compiled function runs that no single graph can repeat, such as one in which the host reads an
// element. Its host code runs in every call. Operators that can be fused are deferred until something needs their
// results: the host, an operator that is not fused, or the end of the function. Then they run together, as a graph.
//
//   const Tensor y = (x * 2 + 1).relu();   // deferred
//   if (y.sum().item<float>() > 0)         // the host reads: runs mul, add, relu and sum as one graph
//     return y.exp() - y;                  // deferred, and run at the end
//
// A sequence of calls with these sizes and dtypes is run one by one the first time; its results are not known before.

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lorry/compile/program.h"
#include "lorry/device/stream.h"
#include "lorry/trace/tracer.h"

namespace lorry::compiler {

/// A graph of deferred calls.
struct Segment {
  std::vector<bool> needed;  ///< for each storage: whether it was made by these calls, and somebody still holds it
  std::vector<trace::TensorRef> arguments, results;  ///< storages are numbers
  std::unique_ptr<const Program> program;            ///< null: the calls run one by one
};

/// A call that follows others. Storages are numbered in the order of their first use since the last segment.
struct DeferredCall {
  trace::RecordedCall call;
  bool is_fusible = true;  ///< otherwise it always runs at once
  std::vector<std::unique_ptr<DeferredCall>> next;
  std::vector<Segment> segments;  ///< of the calls that end with this one
};

/// All sequences of deferred calls of a function.
class LazyFunction {
 public:
  /// wait, autotune: CompileOptions::wait and max_autotune.
  explicit LazyFunction(bool wait, bool autotune = false) : wait_(wait), autotune_(autotune) {}
  LazyFunction(const LazyFunction&) = delete;
  LazyFunction& operator=(const LazyFunction&) = delete;

  /// Whether deferring has been worth it: always before some calls were made, then if several operators were fused.
  bool gains() const { return runs_ < kTrialRuns || fuses_; }
  /// One line for each unit of each segment.
  std::string explain() const;
  std::string sources() const;
  /// Waits until all kernels have been compiled or have failed to compile.
  void wait() const;

 private:
  friend class LazyRun;
  static constexpr int kTrialRuns = 3;
  /// More calls than this are forgotten.
  static constexpr int kMaxCalls = 16384;

  const bool wait_, autotune_;
  mutable std::recursive_mutex mutex_;  ///< held while it runs; the function may call explain()
  DeferredCall first_;
  int calls_ = 0;
  std::atomic<int> runs_{0};
  std::atomic<bool> fuses_{false};
};

/// One run of a function with deferred calls, on this thread, until the end of the scope.
class LazyRun final : private trace::Tracer {
 public:
  explicit LazyRun(LazyFunction& function);
  /// Makes the calls that are still deferred. Errors of these are lost: call finish() unless the function threw.
  ~LazyRun();
  LazyRun(const LazyRun&) = delete;
  LazyRun& operator=(const LazyRun&) = delete;

  /// Whether calls are deferred. False if the function is running already; then this does nothing.
  bool active() const { return lock_.owns_lock(); }
  /// Makes the calls that are still deferred. Throws their errors.
  void finish();

 private:
  /// A storage that calls since the last segment use.
  struct Memory {
    uint64_t id;
    door::Observed tensor;
    bool is_made = false, is_written = false;
  };

  bool replace(const door::CallView& call, std::vector<Tensor>& outputs) override;
  void after(const door::CallView& call) override;
  void fact(const FactView& fact) override;

  bool may_defer(const door::CallView& call) const;
  bool may_defer(const Tensor& x) const;
  bool describe(const door::CallView& call);
  DeferredCall* known(const door::CallView& call) const;
  bool may_add() const;
  DeferredCall* add(const door::CallView& call);
  void advance(DeferredCall& to, const door::CallView& call, std::span<const Tensor> outputs);
  std::optional<int> number_of(uint64_t storage) const;
  bool depends(const door::CallView& call) const;
  Tensor tensor_of(const trace::TensorRef& x) const;
  std::vector<bool> needed() const;
  const Segment& segment();
  void run_deferred();
  template <class F>
  void run_in_their_place(const F& run);
  void run_one_by_one();
  void run(const DeferredCall& deferred);
  void end_segment();

  LazyFunction& function_;
  const std::unique_lock<std::recursive_mutex> lock_;
  const std::array<void*, kMaxDevices> streams_;  ///< the current stream of each device at the beginning
  std::vector<DeferredCall*> path_;               ///< the calls since the last segment
  bool deferred_ = false;                         ///< whether they have not been made yet
  bool replaced_ = false;                         ///< whether the call under way has been deferred
  std::vector<Memory> memory_;
  std::optional<Stream> stream_;  ///< of the calls in `path_`
  // of the call under way, see describe()
  std::vector<trace::RecordedInput> inputs_;
  std::vector<const Tensor*> unknown_;  ///< the first tensor in each storage that is not in `memory_`
  std::optional<trace::TracerScope> tracing_;
};

}  // namespace lorry::compiler
