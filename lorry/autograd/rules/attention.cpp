// Backward rules of attention, rotary positions and embedding. Attention has a fused backward kernel; gradients that
// are themselves recorded, and the gradient of a mask, take the operators below, which store the t x s weights.

#include <limits>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// Each head of x, [b, g, s, d], repeated for the heads of q that share it: [b, h, s, d].
Tensor share_heads(const Tensor& x, int64_t heads) {
  const int64_t b = x.size(0), g = x.size(1), s = x.size(2), d = x.size(3);
  return heads == g ? x : x.unsqueeze(2).expand({b, g, heads / g, s, d}).reshape({b, heads, s, d});
}

/// The adjoint of share_heads.
Tensor unshare_heads(const Tensor& x, const Tensor& like) {
  const int64_t g = like.size(1);
  return x.size(1) == g ? x : x.unflatten(1, {g, x.size(1) / g}).sum({2});
}

/// The gradients of q, k, v and of an additive mask, by operators.
Grads composite_gradient(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                         const AttentionCall& call) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const int64_t heads = q.size(1), t = q.size(2), s = k.size(2);
  if (s == 0) return {zeros_like(q), zeros_like(k), zeros_like(v), Tensor()};
  const Tensor keys = share_heads(k, heads), values = share_heads(v, heads);
  Tensor scores = matmul(q, keys.mT()).mul(call.scale);
  if (mask.defined()) scores = mask.dtype() == kBool ? scores.masked_fill(mask.logical_not(), kNone) : scores.add(mask);
  if (call.causal) scores = scores.masked_fill(ones({t, s}, {kBool, q.device()}).triu(1), kNone);
  // A query that sees nothing has weights of 0, not 0 / 0.
  const Tensor blind = scores.detach().amax({-1}, true).eq(kNone);
  const Tensor weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0);
  const Tensor dropout_factors = call.dropout > 0 ? attention_dropout(q, s, call) : Tensor();
  const Tensor used = dropout_factors.defined() ? weights.mul(dropout_factors) : weights;
  Tensor grad_weights = matmul(g, values.mT());
  if (dropout_factors.defined()) grad_weights = grad_weights.mul(dropout_factors);
  const Tensor grad_scores = weights.mul(grad_weights.sub(weights.mul(grad_weights).sum({-1}, true)));
  return {matmul(grad_scores, keys).mul(call.scale), unshare_heads(matmul(grad_scores.mT(), q).mul(call.scale), k),
          unshare_heads(matmul(used.mT(), g), v), grad_scores};
}

/// The attributes of a call, from the first that both operators have.
AttentionCall recorded_call(const Call& c, int first) {
  return {.scale = c.attribute<double>(first),
          .causal = c.attribute<bool>(first + 1),
          .dropout = c.attribute<double>(first + 2),
          .key = c.attribute<formula::RandomKey>(first + 3)};
}

Grads attention_gradient(const Call& c, const Grads& g) {
  const AttentionCall call = recorded_call(c, 0);
  const Tensor mask = c.defined(3) ? c.input(3) : Tensor();
  if (grad_enabled() || c.needs(3)) {
    Grads all = composite_gradient(g[0], c.input(0), c.input(1), c.input(2), mask, call);
    if (!c.needs(3)) all[3] = Tensor();
    return all;
  }
  const auto fused = attention_backward(g[0], c.input(0), c.input(1), c.input(2), mask, c.output(0), c.output(1), call);
  return {fused[0], fused[1], fused[2], Tensor()};
}

Grads packed_attention_gradient(const Call& c, const Grads& g) {
  const int64_t heads = c.attribute<int64_t>(0);
  const AttentionCall call = recorded_call(c, 1);
  const Tensor qkv = c.input(0);
  if (!grad_enabled()) return {packed_attention_backward(g[0], qkv, c.output(0), c.output(1), heads, call)};
  const int64_t d = qkv.size(2) / 3 / heads;
  const Tensor parts = qkv.view({qkv.size(0), qkv.size(1), 3, heads, d});
  const auto part = [&](int64_t i) { return parts.select(2, i).transpose(1, 2); };
  Grads all =
      composite_gradient(g[0].unflatten(2, {heads, d}).transpose(1, 2), part(0), part(1), part(2), Tensor(), call);
  all.pop_back();
  for (Tensor& x : all) x = x.transpose(1, 2);
  return {stack(all, 2).reshape(qkv.sizes())};
}

/// A rotation's transpose is its inverse.
Grads rotary_gradient(const Call& c, const Grads& g) {
  return {rotary(g[0], c.input(1), c.input(2), c.attribute<int64_t>(0), !c.attribute<bool>(1)), Tensor(), Tensor()};
}

Grads embedding_gradient(const Call& c, const Grads& g) {
  return {embedding_backward(g[0], c.input(1), c.sizes(0)[0], c.attribute<int64_t>(0)), Tensor()};
}

Grads embedding_backward_gradient(const Call& c, const Grads& g) {
  const Tensor indices = c.input(1);
  const int64_t padding = c.attribute<int64_t>(1);
  Tensor rows = embedding(indices, g[0]);
  if (padding >= 0) rows = rows.masked_fill(indices.eq(padding).unsqueeze(-1), 0.0);
  return {rows, Tensor()};
}

constexpr Rule kRules[] = {
    {Op::attention, kInput0 | kInput1 | kInput2 | kInput3 | kOutput0 | kOutput1, attention_gradient},
    {Op::packed_attention, kInput0 | kOutput0 | kOutput1, packed_attention_gradient},
    {Op::rotary, kInput1 | kInput2, rotary_gradient},
    {Op::embedding, kInput1, embedding_gradient},
    {Op::embedding_backward, kInput1, embedding_backward_gradient},
};

}  // namespace

std::span<const Rule> attention_rules() { return kRules; }

}  // namespace lorry::autograd
