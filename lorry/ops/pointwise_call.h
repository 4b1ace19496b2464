#pragma once

// What all pointwise operators share between the door and the kernel: type promotion, broadcasting, the layout of the
// result, checks of types, shapes and overlap, and the launch. Rows of formula/pointwise.def come here by their
// operator number.

#include <span>

#include "lorry/formula/pointwise.h"
#include "lorry/ops/dispatch/table.h"
#include "lorry/tensor/tensor.h"

namespace lorry::ops {

/// Computes into a new tensor. Its strides are those of the operands where these are dense and agree, else row-major.
Tensor pointwise(Op op, std::span<const Operand> operands);

/// Computes into `self`, which has the result's sizes and can store its type. An operand may be `self` itself; one that
/// shares only some of its memory is refused. Throws ShapeError, DTypeError, DeviceError, ValueError.
void pointwise_into(Op op, const Tensor& self, std::span<const Operand> operands);
/// The same for an out= form (ops/dispatch/out.h): an empty `out` gets the result's sizes.
void pointwise_out(Op op, const Tensor& out, std::span<const Operand> operands);

// ---- for whoever launches many at once ------------------------------------------------------------------------------

/// What a call is once its operands have passed every check: its kernel's row, the types of result and computation, its
/// device, whether operands are converted first, and whether that depends on their values (ops/common_operands.h).
struct Resolved {
  Pointwise row;
  DType result, compute;
  Device device;
  bool converts = false, depends_on_values = false;
};

/// The checks of `pointwise`, without a result.
Resolved resolve(Op op, std::span<const Operand> operands);
/// The checks of `pointwise_into`, which writes nothing. `copies`: it would have to copy an operand whose elements may
/// interleave with `out`.
Resolved resolve_into(Op op, const Tensor& out, std::span<const Operand> operands, bool& copies);

/// The operator as a user calls it, through the door.
Tensor call(Op op, std::span<const Operand> operands);
const Tensor& call_in_place(Op op, const Tensor& self, std::span<const Operand> others);

/// Refuses to write a temporary that shares its node and its storage with nothing: it dies at the end of the statement,
/// and the write with it. Throws ValueError.
void require_reachable(const Tensor& target);

/// Refuses a condition that is not bool.
void require_condition(const Tensor& condition);

/// Whether operators of the domain take operands of the dtype.
constexpr bool accepts(Domain domain, DType t) {
  switch (domain) {
    case Domain::number:
      return t != kBool;
    case Domain::whole:
      return !is_floating(t);
    case Domain::integer:
      return is_integral(t);
    case Domain::floating:
      return is_floating(t);
    case Domain::any:
      break;
  }
  return true;
}

/// How an operand's memory lies to that of a tensor about to be written.
enum class Overlap { none, same, partial, unknown };
Overlap overlap(const Tensor& out, const Tensor& x);

}  // namespace lorry::ops
