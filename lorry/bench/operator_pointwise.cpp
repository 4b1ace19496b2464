// Pointwise operators, allocating their result and writing to one that exists: a large result that is allocated also
// pays for memory that the process gets and returns.

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "lorry/bench/operator_cases.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

struct Unary {
  const char* name;
  Tensor (*call)(const Tensor&);
  const Tensor& (*out)(const Tensor&, const Tensor&);
};
struct Binary {
  const char* name;
  Tensor (*call)(const Tensor&, const Operand&);
  const Tensor& (*out)(const Tensor&, const Operand&, const Operand&);
};

#define LORRY_BOTH_FORMS(name) \
  { #name, name, name##_out }
constexpr Unary kUnary[] = {
    LORRY_BOTH_FORMS(abs),   LORRY_BOTH_FORMS(neg),       LORRY_BOTH_FORMS(sign),  LORRY_BOTH_FORMS(square),
    LORRY_BOTH_FORMS(sqrt),  LORRY_BOTH_FORMS(rsqrt),     LORRY_BOTH_FORMS(floor), LORRY_BOTH_FORMS(reciprocal),
    LORRY_BOTH_FORMS(trunc), LORRY_BOTH_FORMS(exp),       LORRY_BOTH_FORMS(expm1), LORRY_BOTH_FORMS(log),
    LORRY_BOTH_FORMS(log1p), LORRY_BOTH_FORMS(log2),      LORRY_BOTH_FORMS(sin),   LORRY_BOTH_FORMS(cos),
    LORRY_BOTH_FORMS(tan),   LORRY_BOTH_FORMS(asin),      LORRY_BOTH_FORMS(atan),  LORRY_BOTH_FORMS(sinh),
    LORRY_BOTH_FORMS(tanh),  LORRY_BOTH_FORMS(erf),       LORRY_BOTH_FORMS(relu),  LORRY_BOTH_FORMS(sigmoid),
    LORRY_BOTH_FORMS(gelu),  LORRY_BOTH_FORMS(gelu_tanh), LORRY_BOTH_FORMS(silu),  LORRY_BOTH_FORMS(round)};
constexpr Binary kBinary[] = {LORRY_BOTH_FORMS(add),          LORRY_BOTH_FORMS(sub),       LORRY_BOTH_FORMS(mul),
                              LORRY_BOTH_FORMS(div),          LORRY_BOTH_FORMS(pow),       LORRY_BOTH_FORMS(maximum),
                              LORRY_BOTH_FORMS(fmod),         LORRY_BOTH_FORMS(remainder), LORRY_BOTH_FORMS(atan2),
                              LORRY_BOTH_FORMS(floor_divide), LORRY_BOTH_FORMS(eq),        LORRY_BOTH_FORMS(lt)};
#undef LORRY_BOTH_FORMS

template <size_t kCount>
bool is_one_of(std::string_view name, const char* const (&names)[kCount]) {
  return std::ranges::find(names, name) != std::end(names);
}

void add_unary(OperatorCases& cases, const Unary& op, int64_t elements, DType dtype, bool into) {
  cases.push_back({.name = fmt::format("{}, {} {}{}", op.name, count_text(elements), dtype, into ? ", out=" : ""),
                   .dtype = dtype,
                   .bytes = 2.0 * static_cast<double>(elements * size_of(dtype)),
                   .flops = 0,
                   .make = [=]() -> Call {
                     const Tensor x = operand({elements}, dtype), out = empty_like(x);
                     if (into) return [=] { op.out(out, x); };
                     return [=] { do_not_optimize(op.call(x)); };
                   }});
}

void add_unary_cases(OperatorCases& cases) {
  constexpr const char* kInto[] = {"abs", "sqrt", "exp", "gelu", "tanh", "reciprocal"};
  constexpr const char* kSmallOnes[] = {"neg", "exp", "gelu", "gelu_tanh", "log", "silu", "sin", "tanh"};
  constexpr const char* kDouble[] = {"abs", "sqrt", "exp", "log", "sin", "tanh", "erf", "tan"};
  constexpr const char* kHalf[] = {"abs", "neg", "exp", "gelu", "sqrt"};
  for (const Unary& op : kUnary) {
    add_unary(cases, op, kLarge, kF32, false);
    add_unary(cases, op, kLarge, kBF16, false);
    if (is_one_of(op.name, kInto)) add_unary(cases, op, kLarge, kF32, true);
    if (is_one_of(op.name, kSmallOnes)) add_unary(cases, op, kSmall, kF32, false);
    if (is_one_of(op.name, kDouble)) add_unary(cases, op, kLarge, kF64, false);
    if (is_one_of(op.name, kHalf)) add_unary(cases, op, kLarge, kF16, false);
  }
}

void add_binary(OperatorCases& cases, const Binary& op, int64_t elements, DType dtype, bool into) {
  const bool compares = is_one_of(op.name, {"eq", "lt"});
  cases.push_back({.name = fmt::format("{}, {} {}{}", op.name, count_text(elements), dtype, into ? ", out=" : ""),
                   .dtype = dtype,
                   .bytes = static_cast<double>(elements * (2 * size_of(dtype) + (compares ? 1 : size_of(dtype)))),
                   .flops = 0,
                   .make = [=]() -> Call {
                     const Tensor x = operand({elements}, dtype), y = operand({elements}, dtype),
                                  out = empty({elements}, {.dtype = compares ? kBool : dtype});
                     if (into) return [=] { op.out(out, x, y); };
                     return [=] { do_not_optimize(op.call(x, y)); };
                   }});
}

void add_binary_cases(OperatorCases& cases) {
  constexpr const char* kInto[] = {"add", "mul", "div"};
  constexpr const char* kSixteen[] = {"add", "mul", "div", "pow", "maximum"};
  constexpr const char* kWhole[] = {"add", "mul", "floor_divide", "remainder", "eq"};
  for (const Binary& op : kBinary) {
    add_binary(cases, op, kLarge, kF32, false);
    if (is_one_of(op.name, kInto)) add_binary(cases, op, kLarge, kF32, true);
    if (is_one_of(op.name, kInto)) add_binary(cases, op, kSmall, kF32, false);
    if (is_one_of(op.name, kSixteen)) add_binary(cases, op, kLarge, kBF16, false);
    if (is_one_of(op.name, kWhole)) add_binary(cases, op, kLarge, kI64, false);
  }
  add_binary(cases, kBinary[0], 64, kF32, false);
  add_binary(cases, kBinary[0], kLarge, kI32, false);
}

/// Functions of one large tensor and something small.
void add_of_one(OperatorCases& cases, const std::string& name, DType dtype, Tensor (*call)(const Tensor& x)) {
  cases.push_back({.name = fmt::format("{}, 4 M {}", name, dtype),
                   .dtype = dtype,
                   .bytes = 2.0 * static_cast<double>(kLarge * size_of(dtype)),
                   .flops = 0,
                   .make = [=]() -> Call { return [=, x = operand({kLarge}, dtype)] { do_not_optimize(call(x)); }; }});
}

void add_broadcast(OperatorCases& cases, const std::string& name, const Dims& sizes, const Dims& other) {
  cases.push_back({.name = name, .dtype = kF32, .bytes = 0, .flops = 0, .make = [=]() -> Call {
                     return [x = operand(sizes), y = operand(other)] { do_not_optimize(x.add(y)); };
                   }});
  double elements = 1;
  for (const int64_t n : sizes) elements *= static_cast<double>(n);
  cases.back().bytes = 2 * 4 * elements;
}

/// Functions of three tensors.
void add_ternary(OperatorCases& cases, const std::string& name, double operands,
                 Tensor (*call)(const Tensor&, const Tensor&, const Tensor&)) {
  cases.push_back({.name = name + ", 4 M f32",
                   .dtype = kF32,
                   .bytes = 4 * operands * static_cast<double>(kLarge),
                   .flops = 0,
                   .make = [=]() -> Call {
                     return [=, x = operand({kLarge}), y = operand({kLarge}), z = operand({kLarge})] {
                       do_not_optimize(call(x, y, z));
                     };
                   }});
}

}  // namespace

void add_pointwise_cases(OperatorCases& cases) {
  add_unary_cases(cases);
  add_binary_cases(cases);
  add_of_one(cases, "add a number", kF32, [](const Tensor& x) { return x.add(1.5); });
  add_of_one(cases, "mul by a number", kBF16, [](const Tensor& x) { return x.mul(1.5); });
  add_of_one(cases, "pow 2", kF32, [](const Tensor& x) { return x.pow(2); });
  add_of_one(cases, "pow 3", kF32, [](const Tensor& x) { return x.pow(3); });
  add_of_one(cases, "pow 0.3", kF32, [](const Tensor& x) { return x.pow(0.3); });
  add_of_one(cases, "floor_divide by 3", kF32, [](const Tensor& x) { return x.floor_divide(3); });
  add_of_one(cases, "floor_divide by 3", kI64, [](const Tensor& x) { return x.floor_divide(3); });
  add_of_one(cases, "clamp", kF32, [](const Tensor& x) { return x.clamp(0.2, 0.8); });
  add_of_one(cases, "clamp", kBF16, [](const Tensor& x) { return x.clamp(0.2, 0.8); });
  add_of_one(cases, "leaky_relu", kF32, [](const Tensor& x) { return leaky_relu(x); });
  add_of_one(cases, "softplus", kF32, [](const Tensor& x) { return softplus(x); });
  add_of_one(cases, "nan_to_num", kF32, [](const Tensor& x) { return nan_to_num(x); });
  add_of_one(cases, "isnan", kF32, [](const Tensor& x) { return isnan(x); });
  add_broadcast(cases, "add a row, 4096 x 1024 f32", {4096, 1024}, {1024});
  add_broadcast(cases, "add a column, 4096 x 1024 f32", {4096, 1024}, {4096, 1});
  add_broadcast(cases, "add a row, 8 x 128 f32", {8, 128}, {128});
  add_ternary(cases, "lerp", 4, [](const Tensor& x, const Tensor& y, const Tensor& z) { return lerp(x, y, z); });
  add_ternary(cases, "addcmul", 4, [](const Tensor& x, const Tensor& y, const Tensor& z) { return addcmul(x, y, z); });
  add_ternary(cases, "addcdiv", 4, [](const Tensor& x, const Tensor& y, const Tensor& z) { return addcdiv(x, y, z); });
  cases.push_back({.name = "where, 4 M f32", .dtype = kF32, .bytes = 13.0 * kLarge, .flops = 0, .make = []() -> Call {
                     const Tensor x = operand({kLarge}), y = operand({kLarge}), chosen = x.lt(y);
                     return [=] { do_not_optimize(where(chosen, x, y)); };
                   }});
  cases.push_back(
      {.name = "masked_fill, 4 M f32", .dtype = kF32, .bytes = 9.0 * kLarge, .flops = 0, .make = []() -> Call {
         const Tensor x = operand({kLarge}), chosen = x.lt(0.5);
         return [=] { do_not_optimize(x.masked_fill(chosen, 0)); };
       }});
}

}  // namespace lorry::bench
