#pragma once

// Scopes that switch recording for the current thread.

#include "lorry/base/modes.h"

namespace lorry {

inline bool grad_enabled() { return mode(kGradMode); }
inline bool inference_enabled() { return mode(kInferenceMode); }

/// Inside, nothing is recorded; versions still count.
class NoGrad : ModeScope {
 public:
  NoGrad() : ModeScope(0, kGradMode) {}
};

/// Inside, gradients are recorded again.
class EnableGrad : ModeScope {
 public:
  EnableGrad() : ModeScope(kGradMode, 0) {}
};

/// Inside, nothing is recorded, and new tensors carry no versions and never enter a graph: PyTorch's inference_mode.
class InferenceMode : ModeScope {
 public:
  InferenceMode() : ModeScope(kInferenceMode, kGradMode) {}
};

}  // namespace lorry
