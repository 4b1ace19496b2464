#pragma once

// What all pointwise operators share between the door and the kernel: type promotion, broadcasting, the layout of the
// result, checks of types, shapes and overlap, and the launch. `op` is a row of formula/pointwise.def.

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

/// What a call does once its operands have passed every check.
struct Resolved {
  Pointwise row;          ///< of the kernel
  DType result, compute;  ///< the types of the result and of the computation
  Device device;
  bool converts = false;           ///< operands are converted first (ops/common_operands.h)
  bool depends_on_values = false;  ///< other numbers might be converted, or refused
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

/// Which elements an operand shares with a tensor that is about to be written.
enum class OperandOverlap {
  none,
  same,     ///< all, each at the same index
  partial,  ///< some
  unknown,  ///< their memory interleaves, and the strides do not tell
};
OperandOverlap operand_overlap(const Tensor& out, const Tensor& x);

}  // namespace lorry::ops
