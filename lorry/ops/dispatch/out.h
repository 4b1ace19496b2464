#pragma once

// The contract of every out= form; it is PyTorch's for pointwise operators and reductions. The result is computed in
// its own dtype, as the form that returns it computes it, and then stored in `out`. `out`
//   - lies on the result's device (DeviceError);
//   - stores the result's kind of number (DTypeError): floating results do not go into integers, integers not into
//   bool;
//   - has the result's sizes; or it has no elements, is no view and requires no gradient: then it gets the sizes, and
//     memory of its own (ShapeError);
//   - is not differentiated: while gradients are recorded neither it nor an operand requires one (GradError).
// Nothing is written unless all of that holds. An operand may be `out` itself.

#include <initializer_list>
#include <tuple>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry {

/// What an out= form is about to store.
struct OutResult {
  Dims sizes;
  DType dtype;
  Device device;
};

/// Throws GradError where `differentiable` operands, or `out`, would need a gradient.
void require_no_gradient(const Tensor& out, bool differentiable);
void require_storable(const Tensor& out, DType result);
void require_fitting(const Tensor& out, const Dims& sizes);
/// Gives an `out` without elements the sizes. Throws ShapeError for other sizes.
void fit_out(const Tensor& out, const Dims& sizes);

/// All of the checks; an `out` without elements gets the result's sizes.
void prepare_out(const Tensor& out, const OutResult& result, bool differentiable);

/// Stores a result that is already computed.
const Tensor& write_out(const Tensor& out, const Tensor& result);
/// The same for operators that return values and where they were.
std::tuple<Tensor, Tensor> write_out(const Tensor& values, const Tensor& indices,
                                     const std::tuple<Tensor, Tensor>& result);

/// The call of an operator whose result `compute(to)` writes: straight into `out` where that has the result's dtype.
template <class Compute, class... A>
const Tensor& write_out(Op op, const Tensor& out, const OutResult& result, const door::Inputs& operands,
                        Compute&& compute, const A&... attributes) {
  prepare_out(out, result, operands.requires_grad());
  const auto write = [&] {
    if (out.dtype() == result.dtype) return compute(out);
    const Tensor computed = empty(result.sizes, {result.dtype, result.device});
    compute(computed);
    out.copy_(computed);
  };
  door::call_into(op, false, std::span(&out, 1), operands, write, attributes...);
  return out;
}

}  // namespace lorry
