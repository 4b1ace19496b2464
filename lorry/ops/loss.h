#pragma once

// Losses. `Reduction` says what becomes of the loss of each sample.

#include "lorry/tensor/tensor.h"

namespace lorry {

enum class Reduction : uint8_t { none, mean, sum };

/// Cross entropy of logits x: [C], [N, C] or [N, C, d...], against class indices (whole numbers, of x's sizes without
/// C) or against class probabilities (floating, x's sizes). weight: [C], dtype of x. The mean is over the weights of
/// the targets' classes; targets equal to ignore_index count for nothing. Keeps one number a sample for the gradient.
/// The loss has x's dtype, or the floating one given: f32 keeps what 16 bits would round away.
/// Throws ShapeError, DTypeError, IndexError for a target that is no class, ValueError for label_smoothing outside [0,
/// 1].
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                     Reduction reduction = Reduction::mean, double label_smoothing = 0.0,
                     std::optional<DType> dtype = {});

/// The same from log-probabilities, with class indices only.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                Reduction reduction = Reduction::mean);

/// (x - target)^2, |x - target|, and their blends. Sizes broadcast.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
/// (x - target)^2 / 2 up to delta, then delta * (|x - target| - delta / 2). Huber 1964.
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double delta = 1.0);
/// huber_loss / beta; l1_loss for a beta of 0.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean, double beta = 1.0);

/// Binary cross entropy of the logits x against probabilities of the same sizes; `weight` multiplies each loss and
/// `pos_weight` the part of the positive class; both broadcast.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                        Reduction reduction = Reduction::mean, const Tensor& pos_weight = {});

}  // namespace lorry
