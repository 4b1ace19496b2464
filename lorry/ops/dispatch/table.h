#pragma once

// The operator table: what listeners can know of an operator beside its call. Its rows come from pointwise.def,
// reduce.def and list.def of formula/ and from ops/dispatch/operators.def, and from nowhere else.

#include <cstdint>
#include <string_view>

#include "lorry/formula/fold.h"

namespace lorry {

enum class Op : uint16_t {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) name,
#include "lorry/formula/pointwise.def"
#define LORRY_REDUCTION(name, fold, map, finish, result) name,
#include "lorry/formula/reduce.def"
#define LORRY_OPERATOR(name, kind, bytes, flops, arguments) name,
#include "lorry/ops/dispatch/operators.def"
#define LORRY_LIST_REDUCTION(name, ...) foreach_##name,
#include "lorry/formula/list.def"
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) foreach_##name,
#include "lorry/formula/pointwise.def"
  count
};
inline constexpr int kOpCount = static_cast<int>(Op::count);

/// pointwise: a row of pointwise.def; operators.def says what the others are.
enum class OpKind : uint8_t { pointwise, differentiable, constant, view, list };

/// The memory that an operator must read and write, without temporaries. An expanded input counts what lies in memory.
enum class Bytes : uint8_t {
  none,         ///< no elements are read or written
  all,          ///< every input is read, every output written
  overwritten,  ///< the same, but the first input (in place, the first list) is only written
  gathered,     ///< the first input is read only as far as the first output has elements; the other inputs are read
  scattered,    ///< the first input is written at as many elements as the last input has; the other inputs are read
  selected,     ///< the same, at as many elements as the indices between the first and the last input select
  stored,       ///< inputs of the outputs' dtype are read, and written to the outputs; the other inputs are read
};

/// The operations that an operator needs. An addition, a comparison or an elementary function is one, a fused
/// multiply-add is two.
struct Flops {
  enum Kind : uint8_t {
    none,
    output,              ///< `each` for every element of the first output
    outputs,             ///< `each` for every element of all outputs
    input,               ///< `each` for every element of the first input or, in a call over lists, of all entries
    parameters,          ///< `each` for every element of a step's parameters: as many inputs as attribute 2 says
    product,             ///< a matrix product: two for each product of two elements
    attention,           ///< two matrix products; half of that if it is causal
    attention_backward,  ///< five matrix products
  };
  Kind kind;
  uint8_t each = 1;
};

struct OpRow {
  const char* name;
  OpKind kind;
  Bytes bytes;
  Flops flops;
  int8_t inputs;          ///< how many a pointwise operator has; -1 for other rows, whose `arguments` say it
  const char* arguments;  ///< "inputs; attributes" as they are announced (ops/dispatch/operators.def)
};

namespace detail {
// Names of the columns in operators.def.
namespace columns {
inline constexpr Flops none{Flops::none}, product{Flops::product}, attention{Flops::attention},
    attention_backward{Flops::attention_backward};
struct PerElement {
  Flops::Kind kind;
  constexpr operator Flops() const { return {kind, 1}; }
  constexpr Flops operator()(uint8_t each) const { return {kind, each}; }
};
inline constexpr PerElement output{Flops::output}, outputs{Flops::outputs}, input{Flops::input},
    parameters{Flops::parameters};

constexpr OpKind kind_of(formula::FoldResult result) {
  return result == formula::FoldResult::truth ? OpKind::constant : OpKind::differentiable;
}

inline constexpr OpRow kRows[kOpCount] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) \
  {#name, OpKind::pointwise, Bytes::all, output, arity, "arguments..."},
#include "lorry/formula/pointwise.def"
#define LORRY_REDUCTION(name, fold, map, finish, result) \
  {#name, kind_of(formula::FoldResult::result), Bytes::all, input, -1, "x; dims, keepdim"},
#include "lorry/formula/reduce.def"
#define LORRY_OPERATOR(name, kind, bytes, flops, arguments) {#name, OpKind::kind, Bytes::bytes, flops, -1, arguments},
#include "lorry/ops/dispatch/operators.def"
#define LORRY_LIST_REDUCTION(name, ...) {"foreach_" #name, OpKind::list, Bytes::all, input, -1, "tensors..."},
#include "lorry/formula/list.def"
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) \
  {"foreach_" #name, OpKind::list, Bytes::all, outputs, -1, "arguments...; counts"},
#include "lorry/formula/pointwise.def"
};
}  // namespace columns
}  // namespace detail

inline constexpr const OpRow (&kOps)[kOpCount] = detail::columns::kRows;

constexpr const OpRow& row(Op op) { return kOps[static_cast<int>(op)]; }
constexpr const char* name(Op op) { return row(op).name; }

/// The row over lists of a pointwise operator, or of copy, cast or fill; Op::count if there is none.
constexpr Op foreach_of(Op op) {
  if (op == Op::copy) return Op::foreach_copy;
  if (op == Op::cast) return Op::foreach_cast;
  if (op == Op::fill) return Op::foreach_fill;
  if (row(op).kind != OpKind::pointwise) return Op::count;
  return static_cast<Op>(static_cast<int>(op) + static_cast<int>(Op::foreach_abs) - static_cast<int>(Op::abs));
}
static_assert(foreach_of(Op::add) == Op::foreach_add);

}  // namespace lorry
