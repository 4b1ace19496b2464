#include "lorry/ops/dispatch/cost.h"

#include <algorithm>
#include <string_view>

namespace lorry::door {
namespace {

/// Elements that lie in memory: a dimension of stride 0 repeats what is there.
int64_t elements(const Tensor& x) {
  if (!x.defined()) return 0;
  if (x.node()->contiguous) return x.node()->numel;
  int64_t count = 1;
  for (int64_t d = 0; d < x.dim(); ++d) count *= x.stride(d) == 0 ? std::min<int64_t>(x.size(d), 1) : x.size(d);
  return count;
}

/// Attribute i, if it is there and a whole number; else null.
const int64_t* whole_at(const CallView& call, size_t i) {
  return i < call.attributes.size() ? std::get_if<int64_t>(&call.attributes[i]) : nullptr;
}

/// Elements of the first input that the indices between it and the last one select: one index a dimension, from the
/// first dimension on or, of index_fill, in the dimension that it names.
int64_t selected(const CallView& call) {
  const Tensor* const x = call.inputs.empty() ? nullptr : call.inputs[0].tensor();
  if (x == nullptr || !x->defined()) return 0;
  const int64_t* const named = call.op == Op::index_fill ? whole_at(call, 0) : nullptr;
  int64_t count = x->numel();
  Dims common;
  for (size_t i = 1; i + 1 < call.inputs.size(); ++i) {
    const Tensor* const index = call.inputs[i].tensor();
    if (index == nullptr || !index->defined()) continue;
    const int64_t dim = named != nullptr ? *named : static_cast<int64_t>(i) - 1;
    if (dim >= 0 && dim < x->dim()) count /= std::max<int64_t>(x->size(dim), 1);
    common = broadcast(common, index->sizes());
  }
  for (const int64_t size : common) count *= size;
  return count;
}

bool reads_what_it_writes(const CallView& call) {
  if (call.op != Op::index_put) return row(call.op).flops.kind != Flops::none;
  const bool* const accumulates = call.attributes.empty() ? nullptr : std::get_if<bool>(&call.attributes[0]);
  return accumulates != nullptr && *accumulates;
}

int64_t bytes(const CallView& call) {
  const Bytes kind = row(call.op).bytes;
  if (kind == Bytes::none) return 0;
  int64_t total = 0;
  const auto input = [&](size_t i) {
    const Tensor* x = i < call.inputs.size() ? call.inputs[i].tensor() : nullptr;
    return x != nullptr ? bytes_in_memory(*x) : 0;
  };
  if (kind == Bytes::stored && !call.outputs.empty()) {
    for (size_t i = call.outputs.size(); i < call.inputs.size(); ++i) {
      const Tensor* const x = call.inputs[i].tensor();
      if (x != nullptr && x->defined()) total += bytes_in_memory(*x) * (x->dtype() == call.outputs[0].dtype() ? 2 : 1);
    }
    return total;
  }
  const size_t first = kind == Bytes::all ? 0 : 1;
  const size_t written = call.in_place && kind == Bytes::overwritten ? call.outputs.size() : first;
  for (size_t i = std::max(first, written); i < call.inputs.size(); ++i) total += input(i);
  if (kind == Bytes::scattered || kind == Bytes::selected) {
    // As many elements are written as the source has, and as many are read where they are combined.
    const Tensor* const source = call.inputs.empty() ? nullptr : call.inputs.back().tensor();
    const int64_t moved = kind == Bytes::selected && !call.outputs.empty()
                              ? selected(call) * size_of(call.outputs[0].dtype())
                          : source != nullptr ? bytes_in_memory(*source)
                                              : 0;
    return total + (reads_what_it_writes(call) ? 2 * moved : moved);
  }
  for (const Tensor& x : call.outputs) total += bytes_in_memory(x);
  if (kind == Bytes::gathered && !call.outputs.empty()) total += bytes_in_memory(call.outputs[0]);
  return total;
}

const Tensor* tensor_at(const CallView& call, size_t i) {
  const Tensor* x = i < call.inputs.size() ? call.inputs[i].tensor() : nullptr;
  return x != nullptr && x->defined() ? x : nullptr;
}

/// Two operations for each factor of each element of the result.
int64_t product(const CallView& call) {
  const Tensor* const a = tensor_at(call, first_factor(call.op));
  if (a == nullptr || a->dim() == 0 || call.outputs.empty()) return 0;
  return 2 * call.outputs[0].numel() * a->size(-1);
}

/// For every pair of a query and a key that it sees. Forward: the scores (q k^T) and the weighted values. Backward: the
/// scores again, the gradients of the weights (by v) and of the scores' operands q and k, and that of v.
int64_t attention(const CallView& call) {
  const bool backward = row(call.op).flops.kind == Flops::attention_backward;
  const bool packed = call.op == Op::packed_attention || call.op == Op::packed_attention_backward;
  const size_t first = backward ? 1 : 0;
  const Tensor* const q = tensor_at(call, first);
  if (q == nullptr) return 0;
  int64_t pairs = 0, key_width = 0, value_width = 0;  // pairs of all batches and heads
  if (packed) {
    if (q->dim() != 3) return 0;
    pairs = q->size(0) * q->size(1) * q->size(1);
    key_width = value_width = q->size(2) / 3;  // of all heads
  } else {
    const Tensor *const k = tensor_at(call, first + 1), *const v = tensor_at(call, first + 2);
    if (k == nullptr || v == nullptr || q->dim() != 4 || k->dim() != 4 || v->dim() != 4) return 0;
    pairs = q->size(0) * q->size(1) * q->size(2) * k->size(2);
    key_width = q->size(3), value_width = v->size(3);
  }
  const size_t causal = packed ? 2 : 1;
  const bool* const half = causal < call.attributes.size() ? std::get_if<bool>(&call.attributes[causal]) : nullptr;
  const int64_t each = backward ? 3 * key_width + 2 * value_width : key_width + value_width;
  return pairs * each * (half != nullptr && *half ? 1 : 2);
}

/// How many inputs are entries of lists. Behind "tensors..." a row may name further inputs.
size_t entries(const CallView& call) {
  std::string_view inputs = row(call.op).arguments;
  inputs = inputs.substr(0, inputs.find(';'));
  const auto others = static_cast<size_t>(std::ranges::count(inputs.substr(inputs.rfind("...")), ','));
  return call.inputs.size() - std::min(call.inputs.size(), others);
}

int64_t elements_of_first(const CallView& call, size_t inputs) {
  int64_t count = 0;
  for (size_t i = 0; i < std::min(call.inputs.size(), inputs); ++i)
    if (const Tensor* x = tensor_at(call, i)) count += x->numel();
  return count;
}

int64_t flops(const CallView& call) {
  const Flops kind = row(call.op).flops;
  switch (kind.kind) {
    case Flops::none:
      return 0;
    case Flops::output:
    case Flops::outputs: {
      const size_t most = kind.kind == Flops::output ? 1 : call.outputs.size();
      int64_t count = 0;
      for (const Tensor& x : call.outputs.first(std::min(call.outputs.size(), most)))
        if (x.defined()) count += x.numel();
      return count * kind.each;
    }
    case Flops::input:
      return elements_of_first(call, row(call.op).kind == OpKind::list ? entries(call) : 1) * kind.each;
    case Flops::parameters: {
      const int64_t* const count = whole_at(call, 2);
      return count != nullptr && *count > 0 ? elements_of_first(call, static_cast<size_t>(*count)) * kind.each : 0;
    }
    case Flops::product:
      return product(call);
    case Flops::attention:
    case Flops::attention_backward:
      return attention(call);
  }
  return 0;
}

DType dtype(const CallView& call) {
  for (const Input& x : call.inputs)
    if (x.tensor() != nullptr && x.tensor()->defined() && is_floating(x.tensor()->dtype())) return x.tensor()->dtype();
  for (const Tensor& x : call.outputs)
    if (x.defined() && is_floating(x.dtype())) return x.dtype();
  return kF32;
}

}  // namespace

int64_t bytes_in_memory(const Tensor& x) { return x.defined() ? elements(x) * size_of(x.dtype()) : 0; }

size_t first_factor(Op op) { return op == Op::addmm || op == Op::baddbmm ? 1 : 0; }

Cost cost(const CallView& call) { return {bytes(call), flops(call), dtype(call)}; }

}  // namespace lorry::door
