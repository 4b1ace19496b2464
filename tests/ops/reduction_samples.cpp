// Reductions, scans, softmax, norms and losses.

#include "lorry/autograd/engine.h"
#include "lorry/ops/internal.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

using T = const Tensors&;

Tensors pair(const std::tuple<Tensor, Tensor>& result) { return {std::get<0>(result), std::get<1>(result)}; }

/// The first operands' gradients, which come from the operator's own kernel when no second derivative is asked for.
template <class F>
Tensors gradients(T t, size_t count, F f) {
  const EnableGrad recording;
  Tensors leaves = t;
  for (size_t k = 0; k < count; ++k) leaves[k] = t[k].detach().requires_grad_();
  const Tensor y = f(leaves);
  return autograd::grad({y}, Tensors(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(count)),
                        {ones_like(y)});
}

constexpr Reduction kMean = Reduction::mean, kSum = Reduction::sum;

SampleInput class_weight(const Dims& sizes) {
  return {.role = SampleInput::Role::chance, .sizes = sizes, .optional = true, .differentiable = false};
}

/// Whether a row of formula/reduce.def takes the dtype.
template <formula::FoldResult kResult>
bool taken(DType t) {
  return kResult != formula::FoldResult::real || is_floating(t);
}
/// Which inputs may be empty when all of their elements are reduced.
constexpr unsigned empty_inputs(formula::FoldResult result) { return result == formula::FoldResult::element ? 0 : 1; }

const Sample kSamples[] = {
// Over one dimension, and over all.
#define LORRY_REDUCTION(name, fold, map, finish, result)                     \
  {.op = Op::name,                                                           \
   .inputs = {value({3, 4})},                                                \
   .call = [](T t) -> Tensors { return {lorry::name(t[0], {-1})}; },         \
   .out = [](T out, T t) { name##_out(out[0], t[0], {-1}); },                \
   .accepts = taken<formula::FoldResult::result>,                            \
   .leading = 1,                                                             \
   .any_rank = true},                                                        \
      {.op = Op::name,                                                       \
       .inputs = {value({3, 4})},                                            \
       .call = [](T t) -> Tensors { return {lorry::name(t[0], {}, true)}; }, \
       .out = [](T out, T t) { name##_out(out[0], t[0], {}, true); },        \
       .accepts = taken<formula::FoldResult::result>,                        \
       .leading = empty_inputs(formula::FoldResult::result),                 \
       .any_rank = true},
#include "lorry/formula/reduce.def"
    {.op = Op::prod,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {prod(t[0], -1)}; },
     .out = [](T out, T t) { prod_out(out[0], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::median,
     .inputs = {value({3, 5})},
     .call = [](T t) -> Tensors { return {median(t[0])}; },
     .any_rank = true},
    {.op = Op::max,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(max(t[0], -1)); },
     .out = [](T out, T t) { max_out(out[0], out[1], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::min,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(min(t[0], -1)); },
     .out = [](T out, T t) { min_out(out[0], out[1], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::aminmax,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(aminmax(t[0], -1)); },
     .out = [](T out, T t) { aminmax_out(out[0], out[1], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::aminmax,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return pair(t[0].aminmax({}, true)); },
     .any_rank = true},
    {.op = Op::argmax,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {argmax(t[0], -1)}; },
     .out = [](T out, T t) { argmax_out(out[0], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::argmin,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {argmin(t[0], -1)}; },
     .out = [](T out, T t) { argmin_out(out[0], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::count_nonzero,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {count_nonzero(t[0], {-1})}; },
     .leading = 1,
     .any_rank = true},
    {.op = Op::var,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {var(t[0], {-1}, 0)}; },
     .out = [](T out, T t) { var_out(out[0], t[0], {-1}, 0); },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::std,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {lorry::std(t[0], {-1}, 0)}; },
     .out = [](T out, T t) { std_out(out[0], t[0], {-1}, 0); },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::norm,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {norm(t[0], 2, {-1})}; },
     .out = [](T out, T t) { norm_out(out[0], t[0], 2, {-1}); },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::norm,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {norm(t[0], 3, {0}, true)}; },
     .out = [](T out, T t) { norm_out(out[0], t[0], 3, {0}, true); },
     .accepts = floating},
    {.op = Op::logsumexp,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {logsumexp(t[0], {-1})}; },
     .out = [](T out, T t) { logsumexp_out(out[0], t[0], {-1}); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::cumsum,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {cumsum(t[0], -1)}; },
     .out = [](T out, T t) { cumsum_out(out[0], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::cumprod,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {cumprod(t[0], -1)}; },
     .out = [](T out, T t) { cumprod_out(out[0], t[0], -1); },
     .leading = 1,
     .any_rank = true},
    {.op = Op::softmax,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {softmax(t[0], -1)}; },
     .out = [](T out, T t) { softmax_out(out[0], t[0], -1); },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::log_softmax,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {log_softmax(t[0], -1)}; },
     .out = [](T out, T t) { log_softmax_out(out[0], t[0], -1); },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::layer_norm,
     .inputs = {value({3, 4}), optional({4}), optional({4})},
     .call = [](T t) -> Tensors { return {layer_norm(t[0], {4}, t[1], t[2])}; },
     .accepts = floating,
     .leading = 1},
    {.op = Op::rms_norm,
     .inputs = {value({3, 4}), optional({4})},
     .call = [](T t) -> Tensors { return {rms_norm(t[0], {4}, t[1])}; },
     .accepts = floating,
     .leading = 1},
    {.op = Op::cross_entropy,
     .inputs = {value({3, 4}), position({3}, {2, 0, 3}), class_weight({4})},
     .call = [](T t) -> Tensors { return {cross_entropy(t[0], t[1], t[2], -100, kMean, 0.1)}; },
     .accepts = floating},
    {.op = Op::cross_entropy,
     .inputs = {value({3, 4}), position({3}, {2, 0, 3}), class_weight({4})},
     .call = [](T t) -> Tensors { return {cross_entropy(t[0], t[1], t[2], 0, kSum)}; },
     .accepts = floating,
     .leading = 3},
    {.op = Op::nll_loss,
     .inputs = {value({3, 4}), position({3}, {2, 0, 3}), class_weight({4})},
     .call = [](T t) -> Tensors { return {nll_loss(t[0], t[1], t[2], 0, kSum)}; },
     .accepts = floating,
     .leading = 3},
    {.op = Op::dropout,
     .inputs = {value({3, 4})},
     .call = [](T t) -> Tensors { return {dropout(t[0], 0.4, true, &fresh_generator())}; },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    // ---- gradients' own kernels
    {.op = Op::softmax_backward,
     .inputs = {value({3, 4}), chance({3, 4})},
     .call = [](T t) -> Tensors { return {softmax_backward(t[0], t[1], -1)}; },
     .accepts = floating,
     .leading = 3,
     .any_rank = true,
     .internal = true},
    {.op = Op::log_softmax_backward,
     .inputs = {value({3, 4}), value({3, 4})},
     .call = [](T t) -> Tensors { return {log_softmax_backward(t[0], t[1], -1)}; },
     .accepts = floating,
     .leading = 3,
     .any_rank = true,
     .internal = true},
    {.op = Op::layer_norm_backward,
     .inputs = {value({3, 4}), value({4}), value({4})},
     .call = [](T t) { return gradients(t, 3, [](T x) { return layer_norm(x[0], {4}, x[1], x[2]).square(); }); },
     .accepts = floating,
     .leading = 1,
     .internal = true},
    {.op = Op::cross_entropy_backward,
     .inputs = {value({3, 4}), position({3}, {2, 0, 3})},
     .call = [](T t) { return gradients(t, 1, [](T x) { return cross_entropy(x[0], x[1], {}, -100, kSum, 0.1); }); },
     .accepts = floating,
     .leading = 3,
     .internal = true},
    {.op = Op::nll_loss_backward,
     .inputs = {value({3, 4}), position({3}, {2, 0, 3})},
     .call = [](T t) { return gradients(t, 1, [](T x) { return nll_loss(x[0], x[1], {}, -100, kSum); }); },
     .accepts = floating,
     .leading = 3,
     .internal = true},
    {.op = Op::attention_backward,
     .inputs = {value({1, 2, 3, 4}), value({1, 2, 5, 4}), value({1, 2, 5, 4})},
     .call =
         [](T t) {
           return gradients(t, 3, [](T x) { return scaled_dot_product_attention(x[0], x[1], x[2]).square(); });
         },
     .accepts = floating,
     .leading = 7,
     .internal = true},
    {.op = Op::packed_attention_backward,
     .inputs = {value({2, 3, 12})},
     .call =
         [](T t) { return gradients(t, 1, [](T x) { return packed_attention(x[0], 2, {.causal = true}).square(); }); },
     .accepts = floating,
     .leading = 1,
     .internal = true},
};

}  // namespace

std::span<const Sample> reduction_samples() { return kSamples; }

}  // namespace lorry::test
