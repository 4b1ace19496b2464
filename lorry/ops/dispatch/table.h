#pragma once

// The operator table: what every listener at the door may know of an operator. Its rows come from pointwise.def,
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

enum class OpKind : uint8_t { pointwise, differentiable, constant, view, list };

/// Which memory an operator reads and writes at the least; temporaries do not count.
enum class Bytes : uint8_t {
  none,         ///< no element is touched
  all,          ///< every element of the inputs is read, of the outputs written; of an expanded input what it repeats
  overwritten,  ///< the same, but the first input is only written
  gathered,     ///< of the first input as many elements as the first output has
  scattered,    ///< the others are read, and as many elements of the first written (and read) as the last one has
  selected,     ///< the same, as many as the indices between the first and the last one select
};

/// Operations that an operator needs: an addition, a comparison or an elementary function is one, a fused
/// multiply-add is two.
struct Flops {
  enum Kind : uint8_t {
    none,
    output,              ///< `each` for an element of the first output
    outputs,             ///< `each` for an element of every output
    input,               ///< `each` for an element of the first input, of a list for those of every input
    product,             ///< a matrix product: two for each of the factors of an element of the output
    attention,           ///< both products; of a causal one the half that is needed
    attention_backward,  ///< five products
  };
  Kind kind;
  uint8_t each = 1;
};

struct OpRow {
  const char* name;
  OpKind kind;
  Bytes bytes;
  Flops flops;
  int8_t inputs;          ///< of a pointwise operator; -1: `arguments` says
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
inline constexpr PerElement output{Flops::output}, outputs{Flops::outputs}, input{Flops::input};

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

/// The row over lists of a pointwise operator, or of copy, cast or fill; Op::count for another operator.
constexpr Op foreach_of(Op op) {
  if (op == Op::copy) return Op::foreach_copy;
  if (op == Op::cast) return Op::foreach_cast;
  if (op == Op::fill) return Op::foreach_fill;
  if (row(op).kind != OpKind::pointwise) return Op::count;
  return static_cast<Op>(static_cast<int>(op) + static_cast<int>(Op::foreach_abs) - static_cast<int>(Op::abs));
}
static_assert(foreach_of(Op::add) == Op::foreach_add);

}  // namespace lorry
