#include "lorry/autograd/checkpoint.h"

#include <mutex>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/saved.h"
#include "lorry/ops/random.h"

namespace lorry::autograd {
namespace {

/// Installs a keeper on this thread for a scope.
class KeeperScope {
 public:
  explicit KeeperScope(Keeper* keeper) : before_(std::exchange(t_keeper, keeper)) {}
  ~KeeperScope() { t_keeper = before_; }
  KeeperScope(const KeeperScope&) = delete;
  KeeperScope& operator=(const KeeperScope&) = delete;

 private:
  Keeper* before_;
};

/// Sees what the second run keeps, in the order in which the first run kept it.
class Collector final : public Keeper {
 public:
  int64_t keep(const Tensor& x) override {
    kept.push_back(x);
    versions.push_back(x.version());
    return -1;
  }
  Tensor recall(int64_t) override { return {}; }
  void forget(int64_t) override {}
  std::vector<Tensor> kept;
  std::vector<uint32_t> versions;
};

/// Counts what the first run keeps, and runs the function again for whoever asks.
class Region final : public Keeper {
 public:
  explicit Region(std::function<Tensor()> function) : function_(std::move(function)), random_(default_generator().state()) {}

  int64_t keep(const Tensor&) override { return count_++; }

  Tensor recall(int64_t number) override {
    const std::scoped_lock lock(mutex_);
    if (!again_) run_again();
    const auto at = static_cast<size_t>(number);
    const Tensor& x = again_->kept[at];
    require<GradError>(x.version() == again_->versions[at], "checkpoint: a tensor kept by the second run was overwritten in place; got {}", x);
    return x;
  }

  void forget(int64_t number) override {
    const std::scoped_lock lock(mutex_);
    if (!again_ || !again_->kept[static_cast<size_t>(number)].defined()) return;
    again_->kept[static_cast<size_t>(number)] = Tensor();
    if (--held_ == 0) again_ = nullptr;
  }

 private:
  void run_again() {
    auto collector = make_counted<Collector>();
    const EnableGrad recording;
    const auto now = default_generator().state();
    default_generator().set_state(random_);
    {
      const KeeperScope collecting(collector.get());
      function_();
    }
    default_generator().set_state(now);
    require<GradError>(static_cast<int64_t>(collector->kept.size()) == count_,
                       "checkpoint: the function did something else when it ran again; got {} tensors kept, {} at first; make it depend on its captures alone",
                       collector->kept.size(), count_);
    again_ = collector;
    held_ = count_;
  }

  std::function<Tensor()> function_;
  Generator::State random_;
  std::mutex mutex_;
  IntrusivePtr<Collector> again_;
  int64_t count_ = 0, held_ = 0;
};

}  // namespace

Tensor checkpoint(const std::function<Tensor()>& function) {
  if (!grad_enabled()) return function();
  const auto region = make_counted<Region>(function);
  const KeeperScope dropping(region.get());
  return function();
}

}  // namespace lorry::autograd
