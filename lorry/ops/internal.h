#pragma once

// What operators and the rules of their gradients use of each other, and users do not: the one-pass gradients, which
// have no rules of their own and are called while nothing is recorded, and forms of operands. Arguments are those of
// calls that were checked.

#include <array>
#include <optional>
#include <tuple>

#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/formula/philox.h"
#include "lorry/kernels/matmul.h"
#include "lorry/ops/loss.h"
#include "lorry/ops/random.h"
#include "lorry/tensor/facts.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

// ---- operands -------------------------------------------------------------------------------------------------------

/// A 0-d CPU tensor that stands for a number in recorded calls: it promotes by kind alone.
Tensor wrapped_number(const Scalar& value);
/// A view of the same memory in which expanded dimensions have size 1; x itself where there are none.
Tensor without_repeats(const Tensor& x);
inline Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? x.contiguous() : x; }
/// A temporary that nothing else refers to, with the sizes that its caller returns. The result is no view.
Tensor reshape_result(const Tensor& temporary, const Dims& sizes);
/// x with `dim` in the place of the last dimension, contiguous: lines as kernels read them.
Tensor contiguous_lines(const Tensor& x, int64_t dim);
/// The inverse, contiguous, for a result of such kernels. It is no view.
Tensor from_lines(const Tensor& x, int64_t dim);
/// Zeros of `sizes` (row-major) with `source` added through a view of them: what a view is to reading. Elements that
/// the view repeats receive the sum, in row-major order of the view.
Tensor embed(const Tensor& source, const Dims& sizes, const View& view);

/// Gives x itself other sizes over the same elements in the same order, as squeeze_ and unsqueeze_ do. Throws
/// ShapeError where the strides do not allow it.
const Tensor& view_in_place(const Tensor& x, const Dims& sizes);
/// Tells listeners that the host is about to read x (tensor/facts.h). wait: what for. Throws CaptureError where calls
/// are captured, the remedy is what to do instead; and SynchronisationError where this thread forbids such waits.
inline void announce_host_read(const Tensor& x, waits::Wait wait,
                               std::string_view remedy = "read it after a replay, or compute on") {
  if (device::is_captured()) [[unlikely]]
    device::refuse_capture("item", fmt::format("the host reads {}", x), remedy);
  waits::expect(wait, !x.device().is_cuda());
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact({.fact = Fact::host_read, .storage = x.storage().id(), .tensor = &x});
}

// ---- ranges ---------------------------------------------------------------------------------------------------------

/// aminmax over several dimensions; none: all.
std::tuple<Tensor, Tensor> aminmax_over(const Tensor& x, const Dims& dims, bool keepdim);

// ---- products -------------------------------------------------------------------------------------------------------

/// Columns of a product that paged_write stores too: keys and values [rows, heads, d] from columns k and v on.
struct CacheWrite {
  Tensor k_cache, v_cache, block_table, slots, positions;  ///< as paged_write takes them; i32 ones contiguous
  int64_t k = 0, v = 0;
};
/// What one kernel does with a product of rows (ops/batch_invariant.h).
struct LinearRowsWith {
  kernels::LinearRowsNeighbours::Norm norm = kernels::LinearRowsNeighbours::no_norm;
  Tensor norm_weight, norm_bias;  ///< [k]; may be undefined
  double eps = 0;
  bool gelu = false;
  Tensor addend;  ///< contiguous, of the result's sizes; may be undefined
  std::optional<CacheWrite> cache;
};
/// norm(x) @ weight^T + bias, then one of these: GELU (its tanh form), plus addend, or stored in a cache too, with the
/// bits of the operators in the BatchInvariant mode. Runs them one by one where one kernel cannot.
Tensor linear_rows_with(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearRowsWith& with);
/// What one kernel does of that; none: there is no kernel.
std::optional<kernels::LinearRowsLimits> linear_rows_limits(DType dtype, Device device);

// ---- gradients ------------------------------------------------------------------------------------------------------

/// grad times the derivative, in one pass over memory. `output` is the operator's result.
Tensor sigmoid_backward(const Tensor& grad, const Tensor& output);
Tensor tanh_backward(const Tensor& grad, const Tensor& output);
Tensor relu_backward(const Tensor& grad, const Tensor& output);
Tensor gelu_backward(const Tensor& grad, const Tensor& x);
Tensor gelu_tanh_backward(const Tensor& grad, const Tensor& x);
Tensor silu_backward(const Tensor& grad, const Tensor& x);
/// grad * scale where `chosen` (bool) is true, else a zero of its sign, or NaN.
Tensor dropout_backward(const Tensor& grad, const Tensor& chosen, double scale);

/// `out` is the operator's result.
Tensor softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim);
Tensor log_softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim);

/// The gradients of x, weight and bias; those not wanted come back undefined. `mean` is undefined for rms_norm; mean
/// and rstd are what the forward call computed.
struct NormGrads {
  Tensor x, weight, bias;
};
NormGrads layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& mean,
                              const Tensor& rstd, int64_t normalized_dims, bool want_x, bool want_weight,
                              bool want_bias);
struct NormGradsWithSum : NormGrads {
  Tensor sum;  ///< of the gradient of x over the rows; of the sizes of the weight
};
/// The same with `addend` [sizes of x], in x's dtype, added to the gradient of x as the operator add would.
NormGradsWithSum layer_norm_backward_with_addend(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                 const Tensor& mean, const Tensor& rstd, const Tensor& addend,
                                                 int64_t normalized_dims, bool want_weight, bool want_bias,
                                                 bool want_sum);
/// Whether a device has kernels for it.
bool has_layer_norm_backward_with_addend(Device device, bool with_sum);

/// Of the class losses. `grad` is that of the loss, `logsumexp` and `total_weight` are what the forward call
/// computed.
Tensor cross_entropy_backward(const Tensor& grad, const Tensor& x, const Tensor& target, const Tensor& weight,
                              const Tensor& logsumexp, const Tensor& total_weight, int64_t ignore_index,
                              Reduction reduction, double label_smoothing);
Tensor nll_loss_backward(const Tensor& grad, const Dims& sizes, const Tensor& target, const Tensor& weight,
                         const Tensor& total_weight, int64_t ignore_index, Reduction reduction);
/// What cross_entropy announces (loss, logsumexp, total weight), and the gradient of x, from one pass over x. `grad` is
/// that of the loss. The gradient is written over x if nobody else holds x's memory: pass it with std::move.
std::array<Tensor, 4> cross_entropy_with_gradient(const Tensor& grad, Tensor x, const Tensor& target,
                                                  const Tensor& weight, int64_t ignore_index, Reduction reduction,
                                                  double label_smoothing, DType dtype);
/// Whether a device has kernels for it.
bool has_cross_entropy_with_gradient(Device device);

/// The sum of the rows of grad [..., width] by index, as [rows, width]. Rows are added in the order of the
/// indices, 16-bit floats in f32. The row `padding_idx` stays 0; -1: none is left out.
Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t rows, int64_t padding_idx);
/// The gradient of a table of onto's sizes, added to `onto` (contiguous, of the dtype of grad) as the operator add
/// would, except that -0 stays -0 in rows that no index names. Written over onto if nobody else holds it: pass it with
/// std::move.
Tensor embedding_backward_onto(const Tensor& grad, const Tensor& indices, Tensor onto);
/// Whether a device has kernels for it, for this dtype and number of indices.
bool has_embedding_backward_onto(DType dtype, Device device, int64_t indices);

/// Makes draws that were made before: the one that a key names, and those after it.
class KeyedGenerator : public Generator {
 public:
  explicit KeyedGenerator(const formula::RandomKey& first) : Generator(first) {}
};

/// What a recorded attention call did.
struct AttentionCall {
  double scale = 1;
  bool causal = false;
  double dropout = 0;
  formula::RandomKey key;
};

/// The gradients of q, k and v (all of rank 4) from the gradient of out.
std::array<Tensor, 3> attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, const Tensor& out, const Tensor& logsumexp,
                                         const AttentionCall& call);
/// The gradient of a packed qkv.
Tensor packed_attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                                 int64_t heads, const AttentionCall& call);

/// The factors of the weights that dropout gave in that call: 0 or 1 / (1 - dropout), [b, h, t, s] for q [b, h, t, d].
Tensor attention_dropout(const Tensor& q, int64_t keys, const AttentionCall& call);

}  // namespace lorry
