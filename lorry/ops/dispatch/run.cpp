// How each row is called again: its function in terms of what it announces.

#include "lorry/ops/dispatch/run.h"

#include <array>
#include <tuple>

#include "lorry/layout/views.h"
#include "lorry/ops/dispatch/arguments.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry::door {
namespace {

using Tensors = std::vector<Tensor>;
using Key = formula::RandomKey;

// ---- from what is announced to the parameters of a function ---------------------------------------------------------

template <class P>
constexpr bool kIsList = std::is_same_v<std::decay_t<P>, Tensors>;
template <class P>
constexpr bool kIsInput =
    std::is_same_v<std::decay_t<P>, Tensor> || std::is_same_v<std::decay_t<P>, Operand> || kIsList<P>;

void append(Tensors& outputs, const Tensor& x) { outputs.push_back(x); }
template <class... T>
void append(Tensors& outputs, const std::tuple<T...>& all) {
  std::apply([&](const auto&... x) { (outputs.push_back(x), ...); }, all);
}
/// Of other results all that counts was announced.
template <class T>
void append(Tensors&, const T&) {}

/// Calls a function whose parameters are inputs, perhaps with one list among them, and then attributes.
template <class F, class R, class... P>
struct Adapter {
  static constexpr size_t kInputs = (size_t{kIsInput<P>} + ... + 0), kAttributes = sizeof...(P) - kInputs;
  static constexpr bool kHasList = (kIsList<P> || ...);

  static Tensors call(const CallView& call) {
    const size_t inputs = call.inputs.size(), attributes = call.attributes.size();
    if ((kHasList ? inputs + 1 < kInputs : inputs != kInputs) || attributes != kAttributes)
      refuse(call, fmt::format("{} inputs and {} attributes", inputs, attributes));
    return with(call, std::index_sequence_for<P...>());
  }

 private:
  template <size_t... I>
  static Tensors with(const CallView& call, std::index_sequence<I...>) {
    Tensors outputs;
    append(outputs, F()(argument<I, P>(call)...));
    return outputs;
  }

  /// How many parameters before the I-th are lists.
  template <size_t I>
  static constexpr size_t lists_before() {
    constexpr bool kLists[] = {kIsList<P>...};
    size_t count = 0;
    for (size_t i = 0; i < I; ++i) count += kLists[i];
    return count;
  }

  template <size_t I, class Parameter>
  static decltype(auto) argument(const CallView& call) {
    using T = std::decay_t<Parameter>;
    [[maybe_unused]] const size_t extra = call.inputs.size() + (kHasList ? 1 : 0) - kInputs;
    if constexpr (!kIsInput<Parameter>) {
      return attribute_of<T>(call, I - kInputs);
    } else if constexpr (kIsList<Parameter>) {
      return tensors_of(call, I, call.inputs.size() - (kInputs - I - 1));
    } else {
      const size_t i = lists_before<I>() > 0 ? I - 1 + extra : I;
      if constexpr (std::is_same_v<T, Operand>)
        return operand_of(call, i);
      else
        return tensor_of(call, i);
    }
  }
};

using Runner = Tensors (*)(const CallView&);

template <class F, class R, class... P>
constexpr Runner runner_of(R (F::*)(P...) const) {
  return &Adapter<F, R, P...>::call;
}
template <class F>
constexpr Runner runner(F) {
  return runner_of(&F::operator());
}

// ---- what attributes mean -------------------------------------------------------------------------------------------

std::optional<int64_t> one_or_all(const Dims& dims) { return dims.size() == 1 ? std::optional(dims[0]) : std::nullopt; }

/// A product is made again with the kernel that it had, whatever mode this thread is in.
Tensor linear_again(bool by_rows, const Tensor& x, const Tensor& weight, const Tensor& bias, bool aligned) {
  const BatchInvariant scope(by_rows);
  return aligned ? linear_aligned(x, weight, bias) : linear(x, weight, bias);
}

Reduction reduction(int64_t value) {
  require<ValueError>(value >= 0 && value <= static_cast<int64_t>(Reduction::sum),
                      "run: a reduction is out of range; got {}", value);
  return static_cast<Reduction>(value);
}

const char* combine_name(int64_t value) {
  switch (static_cast<kernels::Combine>(value)) {
    case kernels::Combine::add:
      return "sum";
    case kernels::Combine::multiply:
      return "prod";
    case kernels::Combine::maximum:
      return "amax";
    case kernels::Combine::minimum:
      return "amin";
    default:
      raise_as<ValueError>("run", "no way to combine; got {}", value);
  }
}

std::optional<int64_t> channel_dim(int64_t dim) { return dim < 0 ? std::nullopt : std::optional(dim); }
CodeFormat code_format(int64_t value) {
  require<ValueError>(value >= 0 && value <= static_cast<int64_t>(CodeFormat::e5m2),
                      "run: a format of codes is out of range; got {}", value);
  return static_cast<CodeFormat>(value);
}

AttentionCall attention_call(double scale, bool causal, double dropout, const Key& key) {
  return {.scale = scale, .causal = causal, .dropout = dropout, .key = key};
}
AttentionOptions shared_attention(double scale, bool causal, double dropout, KeyedGenerator& generator) {
  // k and v are announced with the heads that they have, perhaps fewer than q.
  return {.dropout = dropout, .causal = causal, .scale = scale, .enable_gqa = true, .generator = &generator};
}

Dims last_sizes(const Tensor& x, int64_t count) {
  require_defined(x, "x");
  require<ValueError>(count >= 0 && count <= x.dim(), "run: more dimensions than there are; got {} of {}", count, x);
  Dims sizes;
  for (int64_t d = x.dim() - count; d < x.dim(); ++d) sizes.push_back(x.size(d));
  return sizes;
}

// ---- the table ------------------------------------------------------------------------------------------------------

using T = const Tensor&;

struct Forms {
  Runner call = nullptr, in_place = nullptr;
};

// Long: a table, a row an operator.
constexpr std::array<Forms, kOpCount> kForms = [] {
  std::array<Forms, kOpCount> all{};
  const auto call = [&](Op op, auto f) { all[static_cast<size_t>(op)].call = runner(f); };
  const auto in_place = [&](Op op, auto f) { all[static_cast<size_t>(op)].in_place = runner(f); };

  // ---- copies and views
  in_place(Op::copy, [](T self, T source) { return self.copy_(source); });
  call(Op::cast, [](T x, DType dtype) { return x.to(dtype); });
  call(Op::transfer, [](T x, Device device, bool non_blocking) { return x.to(device, non_blocking); });
  call(Op::clone, [](T x, bool row_major) { return row_major && !x.is_contiguous() ? contiguous(x) : clone(x); });
  in_place(Op::fill, [](T self, const Operand& value) { return self.fill_(value); });
  call(Op::as_strided, [](T x, const Dims& sizes, const Dims& strides, int64_t offset, int64_t x_offset) {
    return as_strided(x, sizes, strides, x.storage_offset() + offset - x_offset);
  });
  call(Op::view, [](T x, const Dims& sizes) { return view(x, sizes); });
  in_place(Op::view, [](T self, const Dims& sizes) { return view_in_place(self, sizes); });
  call(Op::permute, [](T x, const Dims& dims) { return permute(x, dims); });
  call(Op::transpose, [](T x, int64_t dim0, int64_t dim1) { return transpose(x, dim0, dim1); });
  in_place(Op::transpose, [](T self, int64_t dim0, int64_t dim1) { return self.transpose_(dim0, dim1); });
  call(Op::expand, [](T x, const Dims& sizes) { return expand(x, sizes); });
  call(Op::select, [](T x, int64_t dim, int64_t index) { return select(x, dim, index); });
  call(Op::slice, [](T x, int64_t dim, int64_t start, int64_t length, int64_t step) {
    return slice(x, dim, start, length > 0 ? start + (length - 1) * step + 1 : start, step);
  });
  call(Op::diagonal, [](T x, int64_t offset, int64_t dim1, int64_t dim2) { return diagonal(x, offset, dim1, dim2); });
  call(Op::unfold, [](T x, int64_t dim, int64_t size, int64_t step) { return unfold(x, dim, size, step); });
  call(Op::embed, [](T x, const Dims& sizes, const Dims& view_sizes, const Dims& view_strides, int64_t offset) {
    return embed(x, sizes, {Layout::strided(view_sizes, view_strides), offset});
  });

  // ---- creation and random
  call(Op::empty, [](const Dims& sizes, const Dims& strides, DType dtype, Device device) {
    return empty_strided(sizes, strides, {dtype, device});
  });
  call(Op::arange, [](const Scalar& start, const Scalar& end, const Scalar& step, DType dtype, Device device) {
    return arange(start, end, step, {dtype, device});
  });
  call(Op::linspace, [](double start, double end, int64_t steps, DType dtype, Device device) {
    return linspace(start, end, steps, {dtype, device});
  });
  call(Op::tril, [](T x, int64_t diagonal) { return tril(x, diagonal); });
  call(Op::triu, [](T x, int64_t diagonal) { return triu(x, diagonal); });
  in_place(Op::tril, [](T self, int64_t diagonal) { return self.tril_(diagonal); });
  in_place(Op::triu, [](T self, int64_t diagonal) { return self.triu_(diagonal); });
  call(Op::rand, [](const Dims& sizes, DType dtype, Device device, const Key& key) {
    KeyedGenerator generator(key);
    return rand(sizes, {dtype, device}, &generator);
  });
  call(Op::randn, [](const Dims& sizes, DType dtype, Device device, const Key& key) {
    KeyedGenerator generator(key);
    return randn(sizes, {dtype, device}, &generator);
  });
  call(Op::randint, [](int64_t low, int64_t high, const Dims& sizes, DType dtype, Device device, const Key& key) {
    KeyedGenerator generator(key);
    return randint(low, high, sizes, {dtype, device}, &generator);
  });
  call(Op::randperm, [](int64_t n, Device device, const Key& key) {
    KeyedGenerator generator(key);
    return randperm(n, device, &generator);
  });
  call(Op::bernoulli, [](T p, const Key& key) {
    KeyedGenerator generator(key);
    return bernoulli(p, &generator);
  });
  call(Op::multinomial, [](T weights, int64_t samples, bool replacement, const Key& key) {
    KeyedGenerator generator(key);
    return multinomial(weights, samples, replacement, &generator);
  });
  in_place(Op::uniform, [](T self, double low, double high, const Key& key) {
    KeyedGenerator generator(key);
    return self.uniform_(low, high, &generator);
  });
  in_place(Op::normal, [](T self, double mean, double std, const Key& key) {
    KeyedGenerator generator(key);
    return self.normal_(mean, std, &generator);
  });
  in_place(Op::random, [](T self, int64_t low, int64_t high, const Key& key) {
    KeyedGenerator generator(key);
    return self.random_(low, high, &generator);
  });
  in_place(Op::coin, [](T self, double p, const Key& key) {
    KeyedGenerator generator(key);
    return self.bernoulli_(p, &generator);
  });

  // ---- indexing
  call(Op::gather, [](T x, T index, int64_t dim) { return gather(x, dim, index); });
  in_place(Op::scatter, [](T self, T index, T source, int64_t dim) { return self.scatter_(dim, index, source); });
  in_place(Op::scatter_add,
           [](T self, T index, T source, int64_t dim) { return self.scatter_add_(dim, index, source); });
  in_place(Op::scatter_reduce, [](T self, T index, T source, int64_t dim, int64_t combine) {
    return self.scatter_reduce_(dim, index, source, combine_name(combine));
  });
  call(Op::index_select, [](T x, T index, int64_t dim) { return index_select(x, dim, index); });
  in_place(Op::index_add, [](T self, T index, T source, int64_t dim) { return self.index_add_(dim, index, source); });
  in_place(Op::index_copy, [](T self, T index, T source, int64_t dim) { return self.index_copy_(dim, index, source); });
  in_place(Op::index_fill,
           [](T self, T index, const Operand& value, int64_t dim) { return self.index_fill_(dim, index, value); });
  call(Op::index, [](T x, const Tensors& indices) { return index(x, indices); });
  in_place(Op::index_put, [](T self, const Tensors& indices, T values, bool accumulate) {
    return index_put_(self, indices, values, accumulate);
  });
  call(Op::nonzero, [](T x) { return nonzero(x); });
  call(Op::nonzero_static,
       [](T x, int64_t size, int64_t fill_value) { return nonzero_static_with_count(x, size, fill_value); });
  call(Op::cat, [](const Tensors& tensors, int64_t dim) { return cat(tensors, dim); });
  call(Op::flip, [](T x, const Dims& dims) { return flip(x, dims); });
  call(Op::roll, [](T x, const Dims& shifts, const Dims& dims) { return roll(x, shifts, dims); });

  // ---- reductions and scans
#define LORRY_REDUCTION(name, fold, map, finish, result) \
  call(Op::name, [](T x, const Dims& dims, bool keepdim) { return lorry::name(x, dims, keepdim); });
#include "lorry/formula/reduce.def"
  call(Op::prod, [](T x, const Dims& dims, bool keepdim) { return prod(x, one_or_all(dims), keepdim); });
  call(Op::max, [](T x, int64_t dim, bool keepdim) { return max(x, dim, keepdim); });
  call(Op::min, [](T x, int64_t dim, bool keepdim) { return min(x, dim, keepdim); });
  call(Op::aminmax, [](T x, const Dims& dims, bool keepdim) { return aminmax_over(x, dims, keepdim); });
  call(Op::argmax, [](T x, const Dims& dims, bool keepdim) { return argmax(x, one_or_all(dims), keepdim); });
  call(Op::argmin, [](T x, const Dims& dims, bool keepdim) { return argmin(x, one_or_all(dims), keepdim); });
  call(Op::count_nonzero, [](T x, const Dims& dims) { return count_nonzero(x, dims); });
  call(Op::var,
       [](T x, const Dims& dims, double correction, bool keepdim) { return var(x, dims, correction, keepdim); });
  call(Op::std,
       [](T x, const Dims& dims, double correction, bool keepdim) { return lorry::std(x, dims, correction, keepdim); });
  call(Op::norm, [](T x, double p, const Dims& dims, bool keepdim) { return norm(x, p, dims, keepdim); });
  call(Op::logsumexp, [](T x, const Dims& dims, bool keepdim) { return logsumexp(x, dims, keepdim); });
  call(Op::cumsum, [](T x, int64_t dim) { return cumsum(x, dim); });
  call(Op::cumprod, [](T x, int64_t dim) { return cumprod(x, dim); });
  in_place(Op::cumsum, [](T self, int64_t dim) { return self.cumsum_(dim); });
  in_place(Op::cumprod, [](T self, int64_t dim) { return self.cumprod_(dim); });

  // ---- softmax, norms, losses
  call(Op::softmax, [](T x, int64_t dim) { return softmax(x, dim); });
  call(Op::log_softmax, [](T x, int64_t dim) { return log_softmax(x, dim); });
  call(Op::layer_norm, [](T x, T weight, T bias, int64_t dims, double eps) {
    return layer_norm(x, last_sizes(x, dims), weight, bias, eps);
  });
  call(Op::rms_norm,
       [](T x, T weight, int64_t dims, double eps) { return rms_norm(x, last_sizes(x, dims), weight, eps); });
  call(Op::cross_entropy,
       [](T x, T target, T weight, int64_t ignore_index, int64_t kind, double smoothing, DType dtype) {
         return cross_entropy(x, target, weight, ignore_index, reduction(kind), smoothing, dtype);
       });
  call(Op::nll_loss, [](T x, T target, T weight, int64_t ignore_index, int64_t kind) {
    return nll_loss(x, target, weight, ignore_index, reduction(kind));
  });
  call(Op::dropout, [](T x, double p, double, const Key& key) {
    KeyedGenerator generator(key);
    return dropout(x, p, true, &generator);
  });
  call(Op::softmax_backward, [](T grad, T out, int64_t dim) { return softmax_backward(grad, out, dim); });
  call(Op::log_softmax_backward, [](T grad, T out, int64_t dim) { return log_softmax_backward(grad, out, dim); });
  call(Op::layer_norm_backward,
       [](T grad, T x, T weight, T mean, T rstd, int64_t dims, bool want_x, bool want_weight, bool want_bias) {
         last_sizes(x, dims);
         return layer_norm_backward(grad, x, weight, mean, rstd, dims, want_x, want_weight, want_bias);
       });
  call(Op::cross_entropy_backward, [](T grad, T x, T target, T weight, T logsumexp, T total, int64_t ignore_index,
                                      int64_t kind, double smoothing) {
    return cross_entropy_backward(grad, x, target, weight, logsumexp, total, ignore_index, reduction(kind), smoothing);
  });
  call(Op::nll_loss_backward,
       [](T grad, T target, T weight, T total, const Dims& sizes, int64_t ignore_index, int64_t kind) {
         return nll_loss_backward(grad, sizes, target, weight, total, ignore_index, reduction(kind));
       });

  // ---- sorting
  call(Op::sort, [](T x, int64_t dim, bool descending) { return sort(x, dim, descending); });
  call(Op::topk, [](T x, int64_t dim, int64_t k, bool largest) { return topk(x, k, dim, largest); });
  call(Op::median, [](T x, const Dims&) { return median(x); });
  call(Op::unique, [](T x, bool inverse, bool counts) { return unique(x, true, inverse, counts); });

  // ---- tokens
  call(Op::sample_tokens, [](T logits, T temperature, T top_k, T top_p, T uniform) {
    return sample_tokens(logits, temperature, top_k, top_p, uniform);
  });
  call(Op::repetition_penalty,
       [](T logits, T seen, T slots, T penalty) { return repetition_penalty(logits, seen, slots, penalty); });
  in_place(Op::advance_sequences, [](T tokens, T positions, T slots, T drawn, T uniform, T outputs, T seen, T limits,
                                     T keys, T stops, T next) {
    advance_sequences({tokens, positions, slots, drawn, uniform, outputs, seen, limits, keys, stops}, next);
    return std::tuple(tokens, positions, slots, drawn, uniform, outputs, seen);
  });

  // ---- matrix products, attention, embedding
  call(Op::matmul, [](T a, T b) {
    const BatchInvariant off(false);
    return matmul(a, b);
  });
  call(Op::addmm, [](T c, T a, T b, const Scalar& beta, const Scalar& alpha) { return addmm(c, a, b, beta, alpha); });
  in_place(Op::addmm,
           [](T c, T a, T b, const Scalar& beta, const Scalar& alpha) { return c.addmm_(a, b, beta, alpha); });
  call(Op::baddbmm,
       [](T c, T a, T b, const Scalar& beta, const Scalar& alpha) { return baddbmm(c, a, b, beta, alpha); });
  in_place(Op::baddbmm,
           [](T c, T a, T b, const Scalar& beta, const Scalar& alpha) { return c.baddbmm_(a, b, beta, alpha); });
  call(Op::linear, [](T x, T weight, T bias, bool aligned) { return linear_again(false, x, weight, bias, aligned); });
  call(Op::linear_rows,
       [](T x, T weight, T bias, bool aligned) { return linear_again(true, x, weight, bias, aligned); });
  call(Op::attention, [](T q, T k, T v, T mask, double scale, bool causal, double dropout, const Key& key) {
    KeyedGenerator generator(key);
    return scaled_dot_product_attention(q, k, v, mask, shared_attention(scale, causal, dropout, generator));
  });
  call(Op::packed_attention, [](T qkv, int64_t heads, double scale, bool causal, double dropout, const Key& key) {
    KeyedGenerator generator(key);
    return packed_attention(qkv, heads,
                            {.dropout = dropout, .causal = causal, .scale = scale, .generator = &generator});
  });
  in_place(Op::paged_write, [](T k_cache, T v_cache, T k, T v, T block_table, T slots, T positions) {
    paged_write(k_cache, v_cache, k, v, block_table, slots, positions);
    return std::tuple(k_cache, v_cache);
  });
  call(Op::paged_attention, [](T q, T k_cache, T v_cache, T block_table, T slots, T positions, double scale) {
    return paged_attention(q, k_cache, v_cache, block_table, slots, positions, scale);
  });
  call(Op::rotary, [](T x, T cos, T sin, int64_t heads, bool inverse) { return rotary(x, cos, sin, heads, inverse); });
  call(Op::attention_backward, [](T grad, T q, T k, T v, T mask, T out, T logsumexp, double scale, bool causal,
                                  double dropout, const Key& key) {
    return attention_backward(grad, q, k, v, mask, out, logsumexp, attention_call(scale, causal, dropout, key));
  });
  call(Op::packed_attention_backward, [](T grad, T qkv, T out, T logsumexp, int64_t heads, double scale, bool causal,
                                         double dropout, const Key& key) {
    return packed_attention_backward(grad, qkv, out, logsumexp, heads, attention_call(scale, causal, dropout, key));
  });
  call(Op::embedding, [](T weight, T indices, int64_t padding) {
    return embedding(indices, weight, padding < 0 ? std::nullopt : std::optional(padding));
  });
  call(Op::embedding_backward, [](T grad, T indices, int64_t rows, int64_t padding) {
    return embedding_backward(grad, indices, rows, padding);
  });

  // ---- quantisation
  call(Op::quantize_linear, [](T x, T scale, T zero_point, int64_t dim, int64_t format) {
    return quantize_linear(x, scale, zero_point, channel_dim(dim), code_format(format));
  });
  call(Op::dequantize_linear, [](T codes, T scale, T zero_point, int64_t dim, int64_t format, DType dtype) {
    return dequantize_linear(codes, scale, zero_point, channel_dim(dim), code_format(format), dtype);
  });
  call(Op::quantize_blocks, [](T x) { return quantize_blocks(x); });
  call(Op::dequantize_blocks, [](T codes, T scales, DType dtype) { return dequantize_blocks(codes, scales, dtype); });
  call(Op::int8_matmul, [](T a, T b) { return int8_matmul(a, b); });
  return all;
}();

Tensors run_pointwise(const CallView& call) {
  if (call.inputs.size() != static_cast<size_t>(row(call.op).inputs) || !call.attributes.empty())
    refuse(call, fmt::format("{} inputs and {} attributes", call.inputs.size(), call.attributes.size()));
  std::vector<Operand> operands;
  for (size_t i = 0; i < call.inputs.size(); ++i) operands.push_back(operand_of(call, i));
  if (!call.in_place) return {ops::call(call.op, operands)};
  return {ops::call_in_place(call.op, tensor_of(call, 0), std::span(operands).subspan(1))};
}

Runner find(const CallView& call) {
  if (row(call.op).kind == OpKind::pointwise) return run_pointwise;
  const Forms& forms = kForms[static_cast<size_t>(call.op)];
  const Runner found = call.in_place ? forms.in_place : forms.call;
  require<ValueError>(found != nullptr, "run: {} has no such form; got a call that {}", name(call.op),
                      call.in_place ? "is in place" : "makes new tensors");
  return found;
}

}  // namespace

std::vector<Tensor> run(const CallView& call) {
  require<ValueError>(call.op < Op::count, "run: no such operator; got number {}", static_cast<int>(call.op));
  if (row(call.op).kind == OpKind::list) {
    require<ValueError>(call.run != nullptr && call.run != run,
                        "run: {} is a call over lists, made again by another room's function; got none in "
                        "CallView::run; expected foreach::run, or optim::run for an optimizer's step",
                        name(call.op));
    return call.run(call);
  }
  const Runner runner = find(call);
  Tensors outputs;
  {
    RunCapture capture(call.op);
    outputs = runner(call);
    if (capture.outputs()) outputs = std::move(*capture.outputs());
  }
  if (!call.out) return outputs;
  require<ValueError>(outputs.size() == call.outputs.size(), "run: {} has {} outputs; got {} to be written",
                      name(call.op), outputs.size(), call.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) write_out(call.outputs[i], outputs[i]);
  return {call.outputs.begin(), call.outputs.end()};
}

}  // namespace lorry::door
