#pragma once

// The table of pointwise operators as values: what pointwise.def says of each row, for code that asks at run time.

namespace lorry {

enum class Pointwise : unsigned char {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) name,
#include "lorry/formula/pointwise.def"
};

/// The type of a result: the promoted type of the operands, that or a floating one, bool; slope is same for
/// derivatives.
enum class Result : unsigned char { same, real, truth, slope };
/// The promoted types that an operator accepts.
enum class Domain : unsigned char { any, number, whole, integer, floating };

/// A result that is a real function of its operands has a derivative, even where that is zero almost everywhere.
constexpr bool differentiable(Result result, Domain domain) {
  return result != Result::truth && result != Result::slope && domain != Domain::whole && domain != Domain::integer;
}

/// The operands [begin, end) of an operator, whose types decide the result's.
struct Deciding {
  unsigned char begin, end;
};

struct PointwiseRow {
  const char* name;
  unsigned char arity;
  Deciding deciding;
  Result result;
  Domain domain;
};

namespace detail::columns {
/// The column `deciding` of a row.
struct Operands {
  unsigned char arity;
  constexpr Deciding first(unsigned char n) const { return {0, n}; }
  constexpr Deciding after(unsigned char n) const { return {n, arity}; }
};
}  // namespace detail::columns

inline constexpr PointwiseRow kPointwise[] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) \
  {#name, arity, detail::columns::Operands{arity}.deciding, Result::result, Domain::domain},
#include "lorry/formula/pointwise.def"
};
inline constexpr int kPointwiseCount = sizeof(kPointwise) / sizeof(kPointwise[0]);

constexpr const PointwiseRow& row(Pointwise op) { return kPointwise[static_cast<int>(op)]; }

}  // namespace lorry
