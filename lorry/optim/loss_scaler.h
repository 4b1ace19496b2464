#pragma once

// Loss scaling: what f16 training needs, since a gradient under 6e-8 is zero in f16. The loss is multiplied by a scale
// before backward(), the gradients are divided by it while they are applied, and the scale is as large as it can be: it
// grows while all gradients are finite, and where one overflows the step is left out and the scale shrinks
// (Micikevicius et al. 2018, section 3.2; PyTorch's GradScaler).
//
//   scaler.scale(model.loss(x, y)).backward();
//   scaler.step(optimizer);
//   scaler.update();
//
// The scale and what was found lie on the device, and so does the choice to leave a step out: the host waits for
// nothing. They are written in place, so a captured or compiled step that scales, steps and updates goes on adapting
// the scale when it is run again.

#include <cmath>
#include <functional>

#include "lorry/optim/optimizer.h"

namespace lorry::optim {

/// PyTorch's defaults.
struct LossScalerOptions {
  double scale = 65536;  ///< to begin with
  double growth = 2;     ///< what the scale is multiplied by after `interval` updates in a row without an overflow
  double backoff = 0.5;  ///< and after an overflow
  int64_t interval = 2000;
};

class LossScaler {
 public:
  /// For losses and parameters on one device. Throws ValueError for options out of their domain: scale > 0, growth > 1,
  /// 0 < backoff < 1, interval >= 1, all finite.
  explicit LossScaler(const LossScalerOptions& options = {}, Device device = default_device());

  /// loss times the scale, in f32, or in f64 for an f64 loss.
  Tensor scale(const Tensor& loss) const;
  /// Steps by the gradients divided by the scale and clipped to a common norm of max_norm, as clip_grad_norm_ would
  /// clip them; the gradients themselves are only read, since divided by the scale they might not fit f16. If one is
  /// not finite, parameters and state stay as they are and the step does not count. Returns the norm of the divided
  /// gradients before clipping, a 0-d f64. zero_grad: the gradients are filled with zeros afterwards, also those of a
  /// step that was left out.
  Tensor step(Optimizer& optimizer, double max_norm = INFINITY, bool zero_grad = false);
  /// The same for a step that is more than one optimizer's, such as that of several processes: `step` makes it by these
  /// options and returns the norm.
  Tensor step(const std::function<Tensor(const StepOptions&)>& step, double max_norm = INFINITY,
              bool zero_grad = false);
  /// Ends a round of steps: adapts the scale to what they found.
  void update();

  /// The current scale, a 0-d f64 on the device. update() writes this tensor.
  const Tensor& current_scale() const { return scale_; }
  /// "scale" and "growth_tracker", the number of updates since it last changed, both 0-d f64: the tensors themselves,
  /// not copies.
  TensorMap state_dict() const { return {{"scale", scale_}, {"growth_tracker", tracker_}}; }
  /// Throws FormatError for a missing or unexpected entry and for one that is no number; nothing is changed then.
  void load_state_dict(const TensorMap& state);

 private:
  LossScalerOptions options_;
  Tensor scale_, tracker_;
  Tensor found_;  ///< by the steps since the last update, 0-d f64: 0 no step, 1 finite gradients, 2 an overflow
};

}  // namespace lorry::optim
