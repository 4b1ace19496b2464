#include "lorry/optim/loss_scaler.h"

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::optim {

LossScaler::LossScaler(const LossScalerOptions& o, Device device)
    : options_(o),
      scale_(full({}, o.scale, {.dtype = kF64, .device = device})),
      tracker_(zeros({}, {.dtype = kF64, .device = device})),
      found_(zeros({}, {.dtype = kF64, .device = device})) {
  require<ValueError>(o.scale > 0 && std::isfinite(o.scale),
                      "loss_scaler: scale is out of range; got {}; expected a finite number > 0", o.scale);
  require<ValueError>(o.growth > 1 && std::isfinite(o.growth),
                      "loss_scaler: growth is out of range; got {}; expected a finite number > 1", o.growth);
  require<ValueError>(o.backoff > 0 && o.backoff < 1,
                      "loss_scaler: backoff is out of range; got {}; expected 0 < backoff < 1", o.backoff);
  require<ValueError>(o.interval >= 1, "loss_scaler: interval is out of range; got {}; expected at least 1",
                      o.interval);
}

Tensor LossScaler::scale(const Tensor& loss) const {
  const DType dtype = loss.dtype() == kF64 ? kF64 : kF32;
  // A copy in either dtype: the tape saves it, and update() writes the scale.
  return loss.to(dtype).mul(dtype == kF64 ? scale_.clone() : scale_.to(dtype));
}

Tensor LossScaler::step(Optimizer& optimizer, double max_norm, bool zero_grad) {
  return step([&](const StepOptions& options) { return optimizer.step(options); }, max_norm, zero_grad);
}

Tensor LossScaler::step(const std::function<Tensor(const StepOptions&)>& step, double max_norm, bool zero_grad) {
  require<ValueError>(max_norm >= 0, "loss_scaler: max_norm is out of range; got {}; expected a number >= 0", max_norm);
  const NoGrad off;
  const Tensor norm = step({.max_norm = max_norm, .skip_nonfinite = true, .zero_grad = zero_grad, .scale = scale_});
  found_.maximum_(norm.isfinite().logical_not().add(1.0));
  return norm;
}

void LossScaler::update() {
  const NoGrad off;
  const Tensor overflow = found_.gt(1.0);
  tracker_.add_(found_.gt(0.0));
  const Tensor grows = tracker_.ge(static_cast<double>(options_.interval));
  scale_.copy_(scale_.mul(options_.backoff).where(overflow, scale_.mul(options_.growth).where(grows, scale_)));
  tracker_.masked_fill_(overflow.logical_or(grows), 0.0);
  found_.zero_();
}

void LossScaler::load_state_dict(const TensorMap& state) {
  const auto number = [&](const char* key) {
    const auto found = state.find(key);
    require<FormatError>(found != state.end() && found->second.defined(), "loss_scaler: state '{}' is missing", key);
    const Tensor& x = found->second;
    require<FormatError>(x.dim() == 0 && x.dtype() == kF64,
                         "loss_scaler: state '{}' is no number; got {}; expected a 0-d f64", key, x);
    return x;
  };
  const Tensor scale = number("scale"), tracker = number("growth_tracker");
  require<FormatError>(state.size() == 2,
                       "loss_scaler: a state is unexpected; got {} entries; expected scale and growth_tracker",
                       state.size());
  const NoGrad off;
  scale_.copy_(scale), tracker_.copy_(tracker), found_.zero_();
}

}  // namespace lorry::optim
