#include "lorry/autograd/checkpoint.h"

#include <mutex>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/saved.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/random_sequence.h"

namespace lorry::autograd {
namespace {

/// Installs a hook on this thread for a scope.
class SavedTensorHookScope {
 public:
  explicit SavedTensorHookScope(SavedTensorHook* hook) : before_(std::exchange(t_saved_tensor_hook, hook)) {}
  ~SavedTensorHookScope() { t_saved_tensor_hook = before_; }
  SavedTensorHookScope(const SavedTensorHookScope&) = delete;
  SavedTensorHookScope& operator=(const SavedTensorHookScope&) = delete;

 private:
  SavedTensorHook* before_;
};

/// Sees what the second run saves, in the order in which the first run saved it.
class Collector final : public SavedTensorHook {
 public:
  int64_t pack(const Tensor& x) override {
    saved.push_back(x);
    versions.push_back(x.version());
    return -1;
  }
  Tensor unpack(int64_t) override { return {}; }
  void release(int64_t) override {}
  std::vector<Tensor> saved;
  std::vector<uint32_t> versions;
};

/// Counts what the first run saves, and runs the function again for whoever asks.
class Region final : public SavedTensorHook {
 public:
  explicit Region(std::function<Tensor()> function)
      : function_(std::move(function)),
        random_(default_generator().sequence()->position()),
        batch_invariant_(batch_invariant()) {}

  int64_t pack(const Tensor& x) override {
    first_.push_back({&x.storage(), x.version()});
    released_.push_back(false);
    ++held_;
    return static_cast<int64_t>(first_.size()) - 1;
  }

  Tensor unpack(int64_t number) override {
    const std::scoped_lock lock(mutex_);
    const auto at = static_cast<size_t>(number);
    // Another thread's backward has released what this one is about to read.
    require<GradError>(!released_[at],
                       "checkpoint: the graph was freed by an earlier backward; pass retain_graph = true to the "
                       "earlier one to go through it again");
    if (!again_) run_again();
    const Tensor& x = again_->saved[at];
    require<GradError>(x.version() == again_->versions[at],
                       "checkpoint: a tensor saved by the second run was overwritten in place; got {}", x);
    return x;
  }

  void release(int64_t number) override {
    const std::scoped_lock lock(mutex_);
    const auto at = static_cast<size_t>(number);
    if (released_[at]) return;
    released_[at] = true;
    --held_;
    if (again_) again_->saved[at] = Tensor();
    if (held_ == 0) again_ = nullptr;
  }

 private:
  void run_again() {
    auto collector = make_counted<Collector>();
    const EnableGrad recording;
    {
      const lorry::detail::RewindScope rewound(default_generator(), random_);
      const SavedTensorHookScope collecting(collector.get());
      const BatchInvariant invariant(batch_invariant_);
      const lorry::detail::UsersCode function;
      function_();
    }
    require<GradError>(collector->saved.size() == first_.size(),
                       "checkpoint: the function did something else when it ran again; got {} tensors saved, {} at "
                       "first; make it depend on its captures alone",
                       collector->saved.size(), first_.size());
    // What existed before the region has the same storage on both runs, and must not have been written between them.
    for (size_t i = 0; i < first_.size(); ++i)
      require<GradError>(
          &collector->saved[i].storage() != first_[i].storage || collector->versions[i] == first_[i].version,
          "checkpoint: a tensor that the function uses was overwritten in place since its first run; got {}; clone it "
          "before that write",
          collector->saved[i]);
    again_ = collector;
    for (size_t i = 0; i < first_.size(); ++i)
      if (released_[i]) again_->saved[i] = Tensor();
  }

  std::function<Tensor()> function_;
  lorry::detail::RandomSequence::Position random_;
  bool batch_invariant_;  ///< the mode of the first run
  std::mutex mutex_;
  IntrusivePtr<Collector> again_;
  struct FirstRun {
    const Storage* storage;
    uint32_t version;
  };
  std::vector<FirstRun> first_;
  std::vector<bool> released_;
  size_t held_ = 0;  ///< not released
};

}  // namespace

Tensor checkpoint(const std::function<Tensor()>& function) {
  if (!grad_enabled()) return function();
  const auto region = make_counted<Region>(function);
  const SavedTensorHookScope dropping(region.get());
  return function();
}

}  // namespace lorry::autograd
