// The losses against class indices. Kernels see [samples, classes]; here the class dimension moves last and back.

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/loss.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/softmax.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

int64_t class_dim(const Tensor& x) { return x.dim() == 1 ? 0 : 1; }
DType compute_dtype(DType t) { return t == kF64 ? kF64 : kF32; }

void check(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index) {
  require_defined(x, "x");
  require_defined(target, "target");
  require_same_device(x, target);
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got {}; expected one of {}", x,
                      kFloatingNames);
  require<DTypeError>(is_integral(target.dtype()), "targets are not class indices; got {}; expected whole numbers",
                      target);
  require<ShapeError>(x.dim() >= 1, "the input has no class dimension; got {}; expected [C], [N, C] or [N, C, d...]",
                      x);
  Dims samples = x.sizes();
  samples.erase(static_cast<int>(class_dim(x)));
  require<ShapeError>(target.sizes() == samples, "sizes do not fit; got x: {}, target: {}; expected targets of {}", x,
                      target, samples);
  if (weight.defined()) {
    const int64_t classes = x.size(class_dim(x));
    require<ShapeError>(weight.sizes() == Dims{classes},
                        "one weight a class is needed; got {} for x: {}; expected [{}]", weight, x, classes);
    require<DTypeError>(weight.dtype() == x.dtype(), "weight has another dtype than x; got {}; expected {}", weight,
                        x.dtype());
    require_same_device(x, weight);
    require<GradError>(!(mode(kGradMode) && weight.requires_grad()),
                       "class weights have no derivative; got weight: {}; detach it", weight);
  }
  const Tensor flat = target.to(kI64).contiguous();
  const int64_t classes = x.size(class_dim(x));
  const int64_t wrong = backend(x).loss->check_targets(array(flat), classes, ignore_index, current_stream(x.device()));
  if (wrong >= 0)
    raise<IndexError>("a target is no class; got {} at position {} for {} classes; expected {}, or ignore_index {}",
                      flat.reshape({-1})[wrong].item<int64_t>(), wrong, classes, IndexRange{0, classes}, ignore_index);
}

/// The arguments as kernels take them, and the tensors that hold them.
struct ClassRows {
  Tensor x, target, weight;
  int64_t count, classes;

  ClassRows(const Tensor& input, const Tensor& targets, const Tensor& weights)
      : x(with_contiguous_rows(input.dim() <= 2 ? input : input.movedim({1}, {-1}))),
        target(targets.to(kI64).contiguous()),
        weight(weights.defined() ? weights.contiguous() : weights),
        count(target.numel()),
        classes(input.size(class_dim(input))) {}

  kernels::ClassArgs args(int64_t ignore_index, double smoothing = 0) const {
    return {matrix(x),
            {target.data_ptr(), kI64, Layout::contiguous({count})},
            weight.defined() ? array(weight) : kernels::Array{},
            ignore_index,
            smoothing};
  }
  kernels::Array matrix(const Tensor& rows) const {
    return {rows.data_ptr(), rows.dtype(),
            Layout::strided({count, classes}, {rows.dim() == 2 ? rows.stride(0) : classes, 1})};
  }

 private:
  /// A matrix may keep space between its rows; whatever else is not contiguous is copied.
  static Tensor with_contiguous_rows(const Tensor& x) {
    return x.dim() == 2 && x.stride(1) == 1 && x.stride(0) >= x.size(1) ? x : x.contiguous();
  }
};

Tensor mean_loss(const Tensor& total, const Tensor& weight, DType dtype) { return total.div(weight).to(dtype); }

/// loss, total weight of the samples (for the mean).
std::array<Tensor, 2> reduce_losses(const Tensor& losses, const Tensor& row_weights, DType dtype, const Dims& samples,
                                    Reduction reduction) {
  if (reduction == Reduction::none) return {reshape_result(losses, samples).to(dtype), Tensor()};
  if (const auto mean_in_one = backend(losses).loss->mean; mean_in_one != nullptr && reduction == Reduction::mean) {
    const Tensor mean = empty({}, {dtype, losses.device()}), weight = empty({}, losses.options());
    if (mean_in_one(array(mean), array(weight), array(losses), array(row_weights), current_stream(losses.device())))
      return {mean, weight};
  }
  const Tensor total = losses.sum();
  if (reduction == Reduction::sum) return {total.to(dtype), Tensor()};
  const Tensor weight = row_weights.sum();
  return {mean_loss(total, weight, dtype), weight};
}

/// What multiplies the gradient of each sample's loss: [samples], perhaps one number with stride 0.
Tensor sample_scale(const Tensor& grad, const Tensor& total_weight, DType x, int64_t samples) {
  Tensor g = grad.to(compute_dtype(x));
  if (total_weight.defined()) g = g.div(total_weight);
  return g.dim() == 0 ? g.expand({samples}) : g.reshape({samples});
}

/// A gradient of contiguous rows in the order of dimensions of x.
Tensor from_rows(const Tensor& rows, const Dims& sizes) { return sizes.size() <= 2 ? rows : rows.movedim({-1}, {1}); }

Tensor probability_loss(const Tensor& x, const Tensor& target, const Tensor& weight, Reduction reduction,
                        double label_smoothing) {
  require<ShapeError>(target.sizes() == x.sizes(),
                      "class probabilities need x's sizes; got x: {}, target: {}; expected the same", x, target);
  const int64_t dim = class_dim(x), classes = x.size(dim);
  Tensor probabilities = label_smoothing > 0
                             ? target.mul(1 - label_smoothing).add(label_smoothing / static_cast<double>(classes))
                             : target;
  if (weight.defined()) {
    Dims across = Dims::filled(static_cast<int>(x.dim()), 1);
    across[static_cast<int>(dim)] = classes;
    probabilities = probabilities.mul(weight.reshape(across));
  }
  const Tensor losses = log_softmax(x, dim).mul(probabilities).sum({dim}).neg();
  if (reduction == Reduction::none) return losses;
  return reduction == Reduction::sum ? losses.sum() : losses.mean();
}

}  // namespace

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                     Reduction reduction, double label_smoothing, std::optional<DType> dtype) {
  const Running running("cross_entropy");
  require<ValueError>(label_smoothing >= 0 && label_smoothing <= 1,
                      "label_smoothing out of range; got {}; expected 0 to 1", label_smoothing);
  if (dtype) require_dtype(*dtype);
  if (x.defined() && target.defined() && x.dim() >= 1 && is_floating(target.dtype())) {
    const Tensor loss = probability_loss(x, target, weight, reduction, label_smoothing);
    return dtype ? loss.to(*dtype) : loss;
  }
  check(x, target, weight, ignore_index);
  require<DTypeError>(is_floating(dtype.value_or(kF32)), "a loss is not whole; got dtype {}; expected one of {}",
                      dtype.value_or(kF32), kFloatingNames);
  return door::call(
      Op::cross_entropy, {&x, &target, &weight},
      [&]() -> std::array<Tensor, 3> {
        const ClassRows rows(x, target, weight);
        const Options wide{compute_dtype(x.dtype()), x.device()};
        const Tensor losses = empty({rows.count}, wide), row_weights = empty({rows.count}, wide),
                     logsumexp = empty({rows.count}, wide);
        backend(x).loss->cross_entropy(rows.args(ignore_index, label_smoothing), array(losses), array(row_weights),
                                       array(logsumexp), current_stream(x.device()));
        auto [loss, total] = reduce_losses(losses, row_weights, dtype.value_or(x.dtype()), target.sizes(), reduction);
        return {loss, logsumexp, total};
      },
      ignore_index, static_cast<int64_t>(reduction), label_smoothing, dtype.value_or(x.dtype()))[0];
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                Reduction reduction) {
  const Running running("nll_loss");
  check(x, target, weight, ignore_index);
  return door::call(
      Op::nll_loss, {&x, &target, &weight},
      [&] {
        const ClassRows rows(x, target, weight);
        const Options wide{compute_dtype(x.dtype()), x.device()};
        const Tensor losses = empty({rows.count}, wide), row_weights = empty({rows.count}, wide);
        backend(x).loss->nll(rows.args(ignore_index), array(losses), array(row_weights), current_stream(x.device()));
        return reduce_losses(losses, row_weights, x.dtype(), target.sizes(), reduction);
      },
      ignore_index, static_cast<int64_t>(reduction))[0];
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& x, const Tensor& target, const Tensor& weight,
                              const Tensor& logsumexp, const Tensor& total_weight, int64_t ignore_index,
                              Reduction reduction, double label_smoothing) {
  const Running running("cross_entropy_backward");
  return door::call(
      Op::cross_entropy_backward, {&grad, &x, &target, &weight, &logsumexp, &total_weight},
      [&] {
        const ClassRows rows(x, target, weight);
        const Tensor scale = sample_scale(grad, total_weight, x.dtype(), rows.count),
                     grad_x = empty_strided(rows.x.sizes(), rows.x.strides(), x.options());
        backend(x).loss->cross_entropy_backward(rows.args(ignore_index, label_smoothing), rows.matrix(grad_x),
                                                array(scale), array(logsumexp), current_stream(x.device()));
        return from_rows(grad_x, x.sizes());
      },
      ignore_index, static_cast<int64_t>(reduction), label_smoothing);
}

bool has_cross_entropy_with_gradient(Device device) {
  return kernels::backend(device).loss->cross_entropy_with_gradient != nullptr;
}

std::array<Tensor, 4> cross_entropy_with_gradient(const Tensor& grad, Tensor x, const Tensor& target,
                                                  const Tensor& weight, int64_t ignore_index, Reduction reduction,
                                                  double label_smoothing, DType dtype) {
  const Running running("cross_entropy");
  const Stream stream = current_stream(x.device());
  const kernels::LossKernels& loss = *backend(x).loss;
  const bool overwrites = x.node_ptr()->users() == 1 && x.storage().users() == 1;
  const ClassRows rows(x, target, weight);
  const Options wide{compute_dtype(x.dtype()), x.device()};
  const kernels::ClassArgs args = rows.args(ignore_index, label_smoothing);
  const Tensor losses = empty({rows.count}, wide), row_weights = empty({rows.count}, wide),
               logsumexp = empty({rows.count}, wide);
  loss.row_weights(args, array(row_weights), stream);
  const Tensor total = reduction == Reduction::mean ? row_weights.sum() : Tensor();
  const Tensor scale = sample_scale(grad, total, x.dtype(), rows.count),
               grad_x = overwrites ? rows.x.detach() : empty_strided(rows.x.sizes(), rows.x.strides(), x.options());
  loss.cross_entropy_with_gradient(args, array(losses), array(logsumexp), rows.matrix(grad_x), array(scale), stream);
  const Tensor reduced = reduction == Reduction::mean
                             ? mean_loss(losses.sum(), total, dtype)
                             : reduce_losses(losses, row_weights, dtype, target.sizes(), reduction)[0];
  return {reduced, logsumexp, total, from_rows(grad_x, x.sizes())};
}

Tensor nll_loss_backward(const Tensor& grad, const Dims& sizes, const Tensor& target, const Tensor& weight,
                         const Tensor& total_weight, int64_t ignore_index, Reduction reduction) {
  const Running running("nll_loss_backward");
  return door::call(
      Op::nll_loss_backward, {&grad, &target, &weight, &total_weight},
      [&] {
        Dims moved = sizes;
        if (sizes.size() > 2) {
          moved.erase(1);
          moved.push_back(sizes[1]);
        }
        const int64_t classes = moved.back(), samples = target.numel();
        const Tensor targets = target.to(kI64).contiguous(), weights = weight.defined() ? weight.contiguous() : weight;
        const Tensor scale = sample_scale(grad, total_weight, grad.dtype(), samples),
                     grad_x = empty(moved, grad.options());
        const Layout flat = Layout::contiguous({samples});
        backend(grad).loss->nll_backward(
            {{}, {targets.data_ptr(), kI64, flat}, weights.defined() ? array(weights) : kernels::Array{}, ignore_index},
            {grad_x.data_ptr(), grad_x.dtype(), Layout::contiguous({samples, classes})}, array(scale),
            current_stream(grad.device()));
        return from_rows(grad_x, sizes);
      },
      sizes, ignore_index, static_cast<int64_t>(reduction));
}

}  // namespace lorry
