#pragma once

// The functions that PyTorch knows by a second name. The list, and what a row of it gives, is tensor/aliases.def.

#include "lorry/ops/joining.h"
#include "lorry/ops/matmul.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/views.h"

namespace lorry {

// In a row's brackets: what follows x, with the comma between them.
#define LORRY_AFTER_X(...) __VA_OPT__(, ) __VA_ARGS__

#define LORRY_NAMED_ALIAS(alias, call) \
  {                                    \
    const Running running(#alias);     \
    return call;                       \
  }
#define LORRY_ALIAS(alias, original, parameters, arguments)     \
  inline Tensor alias(const Tensor& x LORRY_AFTER_X parameters) \
      LORRY_NAMED_ALIAS(alias, original(x LORRY_AFTER_X arguments))
#define LORRY_ALIAS_OUT(alias, original, parameters, arguments)                                 \
  inline const Tensor& alias##_out(const Tensor& out, const Tensor& x LORRY_AFTER_X parameters) \
      LORRY_NAMED_ALIAS(alias, original##_out(out, x LORRY_AFTER_X arguments))
#define LORRY_ALIAS_BINARY(alias, original)                                                                            \
  inline Tensor alias(const Tensor& x, const Operand& y) LORRY_NAMED_ALIAS(alias, original(x, y)) inline Tensor alias( \
      const Scalar& x, const Tensor& y)                                                                                \
      LORRY_NAMED_ALIAS(alias, original(x, y)) inline const Tensor& alias##_out(                                       \
          const Tensor& out, const Operand& x, const Operand& y) LORRY_NAMED_ALIAS(alias, original##_out(out, x, y))
#define LORRY_ALIAS_LIST(alias, original, parameters, arguments)                                              \
  inline Tensor alias parameters LORRY_NAMED_ALIAS(                                                           \
      alias, original arguments) inline const Tensor& alias##_out(const Tensor& out LORRY_AFTER_X parameters) \
      LORRY_NAMED_ALIAS(alias, original##_out(out LORRY_AFTER_X arguments))
#define LORRY_ALIAS_BRACED(alias, original, parameters, arguments) \
  inline Tensor alias parameters LORRY_NAMED_ALIAS(alias, original arguments)
#include "lorry/tensor/aliases.def"

#undef LORRY_NAMED_ALIAS
#undef LORRY_AFTER_X

}  // namespace lorry
