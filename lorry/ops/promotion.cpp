#include "lorry/ops/promotion.h"

namespace lorry {
namespace {

/// The promoted type of one category; empty until an operand joins.
struct Category {
  DType dtype = kBool;
  bool any = false;

  void join(DType t) {
    dtype = any ? promote(dtype, t) : t;
    any = true;
  }
};

Category combine(Category higher, Category lower) {
  if (!higher.any) return lower;
  if (!lower.any || is_floating(higher.dtype)) return higher;
  if (higher.dtype == kBool || is_floating(lower.dtype)) higher.join(lower.dtype);
  return higher;
}

DType number_type(DType t) { return is_floating(t) ? kF32 : t; }

}  // namespace

DType result_type(std::span<const Operand> operands) {
  const Running running("result_type");
  Category tensors, zero_dim, numbers;
  for (const Operand& x : operands) {
    if (x.tensor() == nullptr) {
      numbers.join(x.scalar().dtype());
      continue;
    }
    require<ValueError>(x.tensor()->defined(), "an operand is an undefined tensor; expected a tensor");
    if (x.tensor()->node()->wrapped_number) {
      numbers.join(number_type(x.tensor()->dtype()));
    } else {
      (x.tensor()->dim() > 0 ? tensors : zero_dim).join(x.tensor()->dtype());
    }
  }
  return combine(tensors, combine(zero_dim, numbers)).dtype;
}

DType result_type(const Operand& a, const Operand& b) {
  const Running running("result_type");
  const Operand both[] = {a, b};
  return result_type(both);
}

}  // namespace lorry
