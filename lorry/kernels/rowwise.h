#pragma once

// Kernels over rows: softmax, norms and losses against class indices.

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

// ---- softmax --------------------------------------------------------------------------------------------------------

// softmax and log_softmax over a dimension, and their gradients. Arrays are contiguous, of one floating dtype and
// shape.

struct SoftmaxKernels {
  void (*softmax)(const Array& out, const Array& x, int64_t dim, bool log, const Stream&) = nullptr;
  /// grad_x from the gradient of the output and the output itself.
  void (*softmax_backward)(const Array& grad_x, const Array& grad, const Array& out, int64_t dim, bool log,
                           const Stream&) = nullptr;
  /// The most elements that may be reduced over where they do not lie side by side. 0: only the last dimension is
  /// taken, or one after which all have size 1.
  int64_t longest_column = 0;
  int64_t fewest_columns = 0;  ///< the fewest lines side by side that softmax takes then
};

// ---- norm -----------------------------------------------------------------------------------------------------------

// layer_norm and rms_norm over contiguous rows. rms_norm is layer_norm without centring; `mean` is then absent.

struct NormArgs {
  Array out, x;        ///< contiguous [rows, n]
  Array weight, bias;  ///< contiguous [n], dtype of x; each may be absent (null data)
  Array mean, rstd;    ///< [rows], written: f64 for f64, else f32
  double eps = 0;
};

struct NormBackwardArgs {
  Array grad_x, grad_weight, grad_bias;  ///< written; each may be absent
  Array grad, x;                         ///< contiguous [rows, n]
  Array weight;                          ///< [n], may be absent
  Array mean, rstd;                      ///< [rows], as written by layer_norm
  /// Added to grad_x, which has been rounded before; contiguous [rows, n], x's dtype; may be absent.
  Array addend = {};
  /// Written: the sums of grad_x, with the addend, over the rows. [n], x's dtype; may be absent.
  Array sum = {};
};

struct NormKernels {
  void (*layer_norm)(const NormArgs&, const Stream&) = nullptr;
  void (*layer_norm_backward)(const NormBackwardArgs&, const Stream&) = nullptr;
  bool takes_addend = false;  ///< whether layer_norm_backward does; otherwise there must be none
  bool gives_sum = false;     ///< the same for `sum`
};

// ---- loss -----------------------------------------------------------------------------------------------------------

// Losses against class indices. Rows are samples, columns are classes. Rows whose target is `ignore_index` have weight
// 0.

struct ClassArgs {
  Array x;       ///< logits (cross_entropy) or log-probabilities (nll): [rows, classes], each row contiguous
  Array target;  ///< i64 [rows], contiguous; each a class or ignore_index, see check_targets
  Array weight;  ///< [classes], dtype of x; may be absent
  int64_t ignore_index = -100;
  double label_smoothing = 0;  ///< cross_entropy only
};

struct LossKernels {
  /// Returns the first row whose target is neither a class nor ignore_index; -1 if there is none. A backend that would
  /// have to wait for the device returns -1 at once. Its other kernels then report such a target while they run, and
  /// give its row weight 0.
  int64_t (*check_targets)(const Array& target, int64_t classes, int64_t ignore_index, const Stream&) = nullptr;
  /// Writes losses [rows] and row_weights [rows] (weight[target]; 0 for ignored rows) in x's compute type (f32, or f64
  /// for f64), and logsumexp [rows] of the same type, which the gradient needs besides x.
  void (*cross_entropy)(const ClassArgs&, const Array& losses, const Array& row_weights, const Array& logsumexp,
                        const Stream&) = nullptr;
  /// Writes grad_x [rows, classes], each row contiguous. `scale` [rows], of the compute type, multiplies each row
  /// (stride 0 for one number).
  void (*cross_entropy_backward)(const ClassArgs&, const Array& grad_x, const Array& scale, const Array& logsumexp,
                                 const Stream&) = nullptr;
  void (*nll)(const ClassArgs&, const Array& losses, const Array& row_weights, const Stream&) = nullptr;
  void (*nll_backward)(const ClassArgs&, const Array& grad_x, const Array& scale, const Stream&) = nullptr;
  /// Writes the row_weights of cross_entropy alone.
  void (*row_weights)(const ClassArgs&, const Array& row_weights, const Stream&) = nullptr;
  /// Writes losses, logsumexp and grad_x as cross_entropy and cross_entropy_backward would. grad_x may be x. Null: the
  /// backend has no such kernel.
  void (*cross_entropy_with_gradient)(const ClassArgs&, const Array& losses, const Array& logsumexp,
                                      const Array& grad_x, const Array& scale, const Stream&) = nullptr;
  /// Writes the sum of losses divided by the sum of row_weights, in the dtype of `mean`, and the latter sum, with the
  /// bits of the operators `sum` and `div`. Returns false if it does not take that many rows. Null: the backend has no
  /// such kernel.
  bool (*mean)(const Array& mean, const Array& total_weight, const Array& losses, const Array& row_weights,
               const Stream&) = nullptr;
};

}  // namespace lorry::kernels
