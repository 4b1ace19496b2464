#include "lorry/ops/attention.h"

#include <cmath>

#include "lorry/base/events.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/random_sequence.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

/// x with rows of unit stride that do not overlap, as the kernels read it.
Tensor readable(const Tensor& x) {
  const Layout& l = x.layout();
  if (x.numel() == 0 || ((l.strides[l.rank - 1] == 1 || l.sizes[l.rank - 1] == 1) &&
                         (l.sizes[l.rank - 2] == 1 || l.strides[l.rank - 2] >= l.sizes[l.rank - 1])))
    return x;
  events::emit(events::Kind::hidden_copy, t_operator, "the rows of an operand have no unit stride");
  Tensor copy = empty(x.sizes(), x.options());
  copy.copy_(x);
  return copy;
}

DType statistics_dtype(DType t) { return t == kF64 ? kF64 : kF32; }

/// [b, h, t, e] in the memory order of [b, t, h, e]: what follows attention joins the heads of a position, and that is
/// then a view.
Tensor empty_heads(int64_t b, int64_t h, int64_t t, int64_t e, const Options& options) {
  return empty_strided({b, h, t, e}, {t * h * e, e, h * e, 1}, options);
}

/// q, k or v (part 0, 1 or 2) of a packed tensor of rows [..., 3 * width].
kernels::Array part_of(const Tensor& packed, int part, int64_t heads) {
  const int64_t d = packed.size(2) / 3 / heads;
  const Layout& l = packed.layout();
  char* const data = static_cast<char*>(packed.data_ptr()) + part * heads * d * size_of(packed.dtype());
  return {data, packed.dtype(),
          Layout::strided({l.sizes[0], heads, l.sizes[1], d}, {l.strides[0], d, l.strides[1], 1})};
}

/// The heads of a tensor whose rows are [..., width].
kernels::Array heads_of(const Tensor& x, int64_t heads) {
  const Layout& l = x.layout();
  const int64_t d = l.sizes[2] / heads;
  return {x.data_ptr(), x.dtype(),
          Layout::strided({l.sizes[0], heads, l.sizes[1], d}, {l.strides[0], d, l.strides[1], 1})};
}

kernels::AttentionArgs arguments(const AttentionCall& call) {
  kernels::AttentionArgs args;
  args.scale = call.scale, args.causal = call.causal, args.dropout = call.dropout, args.key = call.key;
  return args;
}

void require_call(const AttentionOptions& options) {
  require<ValueError>(options.dropout >= 0 && options.dropout <= 1, "dropout out of range; got {}; expected 0 to 1",
                      options.dropout);
}

AttentionCall call_of(const AttentionOptions& options, int64_t d, Device device) {
  AttentionCall call{.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(d))),
                     .causal = options.causal,
                     .dropout = options.dropout,
                     .key = {}};
  if (options.dropout > 0) call.key = detail::next_key(options.generator, device);
  return call;
}

/// All of rank 4; the mask undefined or [b, h, t, s].
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const AttentionCall& call) {
  return door::call(
      Op::attention, {&q, &k, &v, &mask},
      [&] {
        const Tensor rows_q = readable(q), rows_k = readable(k), rows_v = readable(v);
        std::array<Tensor, 2> result{
            empty_heads(q.size(0), q.size(1), q.size(2), v.size(3), q.options()),
            empty({q.size(0), q.size(1), q.size(2)}, {statistics_dtype(q.dtype()), q.device()})};
        kernels::AttentionArgs args = arguments(call);
        args.q = array(rows_q), args.k = array(rows_k), args.v = array(rows_v), args.out = array(result[0]),
        args.logsumexp = array(result[1]);
        if (mask.defined()) args.mask = array(mask);
        backend(q).attention->forward(args, current_stream(q.device()));
        return result;
      },
      call.scale, call.causal, call.dropout, call.key)[0];
}

/// What is before the last two dimensions.
Dims leading(const Tensor& x) {
  Dims sizes = x.sizes();
  sizes.resize(sizes.size() - 2);
  return sizes;
}

/// x with its leading sizes expanded to `lead` and joined into [batch, heads].
Tensor with_rank_4(const Tensor& x, Dims lead) {
  Dims expanded = lead;
  expanded.push_back(x.size(-2));
  expanded.push_back(x.size(-1));
  const Tensor full = x.sizes() == expanded ? x : x.expand(expanded);
  if (lead.size() == 2) return full;
  int64_t batch = 1;
  for (int i = 0; i + 1 < lead.size(); ++i) batch *= lead[i];
  return full.reshape({batch, lead.empty() ? 1 : lead.back(), x.size(-2), x.size(-1)});
}

void require_operands(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      const AttentionOptions& options) {
  require_call(options);
  const char* const names[] = {"q", "k", "v"};
  const Tensor* const operands[] = {&q, &k, &v};
  for (int i = 0; i < 3; ++i) {
    const Tensor& x = *operands[i];
    require_defined(x, names[i]);
    require_same_device(x, q);
    require<DTypeError>(is_floating(x.dtype()) && x.dtype() == q.dtype(),
                        "{} has another dtype; got q: {}, {}: {}; expected one floating dtype", names[i], q, names[i],
                        x);
    require<ShapeError>(x.dim() >= 2, "{} has too few dimensions; got {}; expected [..., length, width]", names[i], x);
  }
  require<ShapeError>(q.size(-1) == k.size(-1), "widths differ; got q: {}, k: {}; expected equal last sizes", q, k);
  require<ShapeError>(k.size(-2) == v.size(-2),
                      "lengths differ; got k: {}, v: {}; expected equal sizes in the last dimension but one", k, v);
  if (!mask.defined()) return;
  require_same_device(mask, q);
  require<ValueError>(
      !options.causal,
      "causal together with a mask; got mask: {}; expected one of them; put the causal part into the mask", mask);
  require<DTypeError>(mask.dtype() == kBool || is_floating(mask.dtype()),
                      "the mask is neither bool nor floating; got {}", mask);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const AttentionOptions& options) {
  const Running running("scaled_dot_product_attention");
  require_operands(q, k, v, mask, options);
  Dims lead_q = leading(q), lead_k = leading(k), lead_v = leading(v);
  if (options.enable_gqa && !lead_q.empty() && !lead_k.empty() && !lead_v.empty()) {
    const int64_t heads = lead_q.back(), shared = lead_k.back();
    require<ShapeError>(
        shared == lead_v.back() && shared > 0 && heads % shared == 0,
        "heads do not divide; got q: {}, k: {}, v: {}; expected k and v with equally many, and q with a multiple", q, k,
        v);
    lead_q.pop_back(), lead_k.pop_back(), lead_v.pop_back();
    const Dims batch = broadcast(broadcast(lead_q, lead_k), lead_v);
    lead_q = lead_k = lead_v = batch;
    lead_q.push_back(heads), lead_k.push_back(shared), lead_v.push_back(shared);
  } else {
    lead_q = lead_k = lead_v = broadcast(broadcast(lead_q, lead_k), lead_v);
  }
  Tensor added = mask;
  if (mask.defined()) {
    Dims sizes = lead_q;
    sizes.push_back(q.size(-2));
    sizes.push_back(k.size(-2));
    if (mask.dtype() != kBool) added = mask.to(q.dtype());
    added = with_rank_4(added.expand(sizes), lead_q);
  }
  const Tensor out = attend(with_rank_4(q, lead_q), with_rank_4(k, lead_k), with_rank_4(v, lead_v), added,
                            call_of(options, q.size(-1), q.device()));
  if (lead_q.size() == 2) return out;
  Dims sizes = lead_q;
  sizes.push_back(q.size(-2));
  sizes.push_back(v.size(-1));
  return reshape_result(out, sizes);
}

Tensor packed_attention(const Tensor& qkv, int64_t heads, const AttentionOptions& options) {
  const Running running("packed_attention");
  require_call(options);
  require_defined(qkv, "qkv");
  require<DTypeError>(is_floating(qkv.dtype()), "dtype is not floating; got {}", qkv);
  require<ShapeError>(heads > 0 && qkv.dim() == 3 && qkv.size(2) % (3 * heads) == 0,
                      "qkv does not divide; got {} and {} heads; expected [b, t, 3 * heads * d]", qkv, heads);
  require<ValueError>(!options.enable_gqa, "grouped heads are not packed; use scaled_dot_product_attention");
  const int64_t width = qkv.size(2) / 3;
  const AttentionCall call = call_of(options, width / heads, qkv.device());
  return door::call(
      Op::packed_attention, {&qkv},
      [&] {
        const Tensor rows = readable(qkv);
        std::array<Tensor, 2> result{
            empty({qkv.size(0), qkv.size(1), width}, qkv.options()),
            empty({qkv.size(0), heads, qkv.size(1)}, {statistics_dtype(qkv.dtype()), qkv.device()})};
        kernels::AttentionArgs args = arguments(call);
        args.q = part_of(rows, 0, heads), args.k = part_of(rows, 1, heads), args.v = part_of(rows, 2, heads);
        args.out = heads_of(result[0], heads), args.logsumexp = array(result[1]);
        backend(qkv).attention->forward(args, current_stream(qkv.device()));
        return result;
      },
      heads, call.scale, call.causal, call.dropout, call.key)[0];
}

std::array<Tensor, 3> attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, const Tensor& out, const Tensor& logsumexp,
                                         const AttentionCall& call) {
  const Running running("attention_backward");
  return door::call(
      Op::attention_backward, {&grad, &q, &k, &v, &mask, &out, &logsumexp},
      [&] {
        const Tensor rows_grad = readable(grad), rows_q = readable(q), rows_k = readable(k), rows_v = readable(v);
        const auto like = [](const Tensor& x) {
          return empty_heads(x.size(0), x.size(1), x.size(2), x.size(3), x.options());
        };
        std::array<Tensor, 3> result{like(q), like(k), like(v)};
        kernels::AttentionArgs args = arguments(call);
        args.q = array(rows_q), args.k = array(rows_k), args.v = array(rows_v), args.out = array(out),
        args.logsumexp = array(logsumexp);
        if (mask.defined()) args.mask = array(mask);
        backend(q).attention->backward(args, {array(rows_grad), array(result[0]), array(result[1]), array(result[2])},
                                       current_stream(q.device()));
        return result;
      },
      call.scale, call.causal, call.dropout, call.key);
}

Tensor packed_attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                                 int64_t heads, const AttentionCall& call) {
  const Running running("packed_attention_backward");
  return door::call(
      Op::packed_attention_backward, {&grad, &qkv, &out, &logsumexp},
      [&] {
        const Tensor rows_grad = readable(grad), rows = readable(qkv);
        Tensor result = empty(qkv.sizes(), qkv.options());
        kernels::AttentionArgs args = arguments(call);
        args.q = part_of(rows, 0, heads), args.k = part_of(rows, 1, heads), args.v = part_of(rows, 2, heads);
        args.out = heads_of(out, heads), args.logsumexp = array(logsumexp);
        backend(qkv).attention->backward(args,
                                         {heads_of(rows_grad, heads), part_of(result, 0, heads),
                                          part_of(result, 1, heads), part_of(result, 2, heads)},
                                         current_stream(qkv.device()));
        return result;
      },
      heads, call.scale, call.causal, call.dropout, call.key);
}

Tensor attention_dropout(const Tensor& q, int64_t keys, const AttentionCall& call) {
  const Tensor mask = empty({q.size(0), q.size(1), q.size(2), keys}, q.options());
  KeyedGenerator generator(call.key);
  mask.bernoulli_(1 - call.dropout, &generator);
  return call.dropout < 1 ? mask.mul(1 / (1 - call.dropout)) : mask;
}

}  // namespace lorry
