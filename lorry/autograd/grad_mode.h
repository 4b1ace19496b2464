#pragma once

// Scopes that switch recording for the current thread.

#include "lorry/base/modes.h"

namespace lorry {

/// Whether operators on this thread record gradients.
inline bool grad_enabled() { return mode(kGradMode); }
/// Whether this thread is inside an InferenceMode.
inline bool inference_enabled() { return mode(kInferenceMode); }

/// Inside, nothing is recorded; versions still count.
class NoGrad : ModeScope {
 public:
  NoGrad() : ModeScope(0, kGradMode) {}
};

/// Inside, gradients are recorded again; in inference mode still nothing is.
class EnableGrad : ModeScope {
 public:
  EnableGrad() : ModeScope(inference_enabled() ? 0u : uint32_t{kGradMode}, 0) {}
};

/// Inside, nothing is recorded, and new tensors carry no versions and never enter a graph: PyTorch's inference_mode.
/// With `on` false the scope ends inference mode and NoGrad: gradients are recorded, and new tensors are ordinary ones.
class InferenceMode : ModeScope {
 public:
  explicit InferenceMode(bool on = true)
      : ModeScope(on ? kInferenceMode : kGradMode, on ? kGradMode : kInferenceMode) {}
};

}  // namespace lorry
