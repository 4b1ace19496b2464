#pragma once

// The operator table: what every listener at the door may know of an operator. Its rows come from formula/pointwise.def
// and ops/dispatch/operators.def, and from nowhere else.

#include <cstdint>
#include <string_view>

namespace lorry {

enum class Op : uint16_t {
#define LORRY_POINTWISE(name, Formula, arity, result, domain) name,
#include "lorry/formula/pointwise.def"
#define LORRY_OPERATOR(name, kind) name,
#include "lorry/ops/dispatch/operators.def"
  count
};
inline constexpr int kOpCount = static_cast<int>(Op::count);

enum class OpKind : uint8_t { pointwise, differentiable, constant, view };

struct OpRow {
  const char* name;
  OpKind kind;
};

inline constexpr OpRow kOps[kOpCount] = {
#define LORRY_POINTWISE(name, Formula, arity, result, domain) {#name, OpKind::pointwise},
#include "lorry/formula/pointwise.def"
#define LORRY_OPERATOR(name, kind) {#name, OpKind::kind},
#include "lorry/ops/dispatch/operators.def"
};

constexpr const OpRow& row(Op op) { return kOps[static_cast<int>(op)]; }
constexpr const char* name(Op op) { return row(op).name; }

}  // namespace lorry
