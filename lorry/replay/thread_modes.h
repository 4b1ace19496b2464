#pragma once

// The modes of a thread that decide what operators do, for another thread that goes on for it.

#include "lorry/autograd/grad_mode.h"
#include "lorry/foreach/tensor_list.h"
#include "lorry/ops/batch_invariant.h"
#include "lorry/tensor/tensor.h"

namespace lorry::replay::detail {

/// The modes of the thread that makes it. Listeners, such as profilers, are not among them: they are the thread's own.
class ThreadModes {
 public:
  /// Sets the modes on this thread. The default device stays set.
  class Scope {
   public:
    explicit Scope(const ThreadModes& of)
        : modes_(of.modes_, kMoved & ~of.modes_), invariant_(of.batch_invariant_), strategy_(of.strategy_) {
      set_default_device(of.device_);
    }

   private:
    ModeScope modes_;
    BatchInvariant invariant_;
    foreach::StrategyScope strategy_;
  };

 private:
  static constexpr uint32_t kMoved = kGradMode | kInferenceMode;

  const uint32_t modes_ = t_modes & kMoved;
  const Device device_ = default_device();
  const bool batch_invariant_ = batch_invariant();
  const Strategy strategy_ = foreach::current_strategy();
};

}  // namespace lorry::replay::detail
