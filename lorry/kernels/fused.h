#pragma once

// Fused pointwise kernels: a list of pointwise operators over one set of elements, whose intermediate results never
// reach memory. Each step gives what the operator alone gives, to the bit: it is computed in the same type by the same
// formula, and rounded to its own element type.

#include <cstdint>
#include <span>

#include "lorry/device/stream.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// What a step reads: register numbers. The inputs of a call are registers 0, 1, ...; step k makes register inputs + k.
struct FusedStep {
  enum Kind : uint8_t {
    formula,  ///< a row of formula/pointwise.def
    convert,  ///< in[0] as another element type
  };
  Kind kind = formula;
  Pointwise op{};
  DType compute = kF32;  ///< kF32, kF64 or kI64: operands are converted to it
  DType result = kF32;   ///< the operator's own result type
  DType dtype = kF32;    ///< of the register: the result is converted to it
  int8_t arity = 1;
  int16_t in[4] = {};
};

/// An input that is read or an output that is written at every element of the domain.
struct FusedOperand {
  void* data = nullptr;  ///< the address of the first element, or of the number
  Layout layout;         ///< of the domain's sizes, with stride 0 where it is broadcast; rank -1: a number
  DType dtype = kF32;
};

struct FusedOutput {
  FusedOperand to;
  int16_t from = 0;  ///< a register of the same dtype that a step makes
};

struct FusedCall {
  Dims sizes;  ///< of the domain
  std::span<const FusedOperand> inputs;
  std::span<const FusedStep> steps;
  std::span<const FusedOutput> outputs;  ///< which overlap neither each other nor an input, but may be one exactly
};

/// What a call may hold; more is to be split.
inline constexpr int kMaxFusedSteps = 64, kMaxFusedOperands = 32, kMaxFusedLayouts = 6;

struct FusedKernels {
  void (*run)(const FusedCall& call, Stream stream);
};

}  // namespace lorry::kernels
