// Undefined tensors in lists: every list operator refuses them by type.

#include <gtest/gtest.h>

#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/ops.h"

namespace lorry::foreach {
namespace {

/// Lists of f32 tensors, with an undefined one at each position in turn.
template <class Call>
void expect_refused(const Call& call) {
  for (size_t at = 0; at < 3; ++at) {
    std::vector<Tensor> tensors = {ones({2, 3}), ones({4}), ones({5})};
    tensors[at] = Tensor();
    const TensorList with_one(tensors), without(std::vector<Tensor>{ones({2, 3}), ones({4}), ones({5})});
    EXPECT_THROW(call(with_one, without), ValueError) << "undefined at " << at;
  }
}

TEST(UndefinedInLists, every_pointwise_row_refuses_them){
#define LORRY_UNARY(row, Formula, result, domain)                              \
  {                                                                            \
    SCOPED_TRACE(#row);                                                        \
    expect_refused([](const TensorList& x, const TensorList&) { row(x); });    \
    expect_refused([](const TensorList& x, const TensorList&) { row##_(x); }); \
  }
#define LORRY_BINARY(row, Formula, result, domain)                                  \
  {                                                                                 \
    SCOPED_TRACE(#row);                                                             \
    expect_refused([](const TensorList& x, const TensorList& y) { row(x, y); });    \
    expect_refused([](const TensorList& x, const TensorList& y) { row(y, x); });    \
    expect_refused([](const TensorList& x, const TensorList&) { row(x, 2); });      \
    expect_refused([](const TensorList& x, const TensorList&) { row(2, x); });      \
    expect_refused([](const TensorList& x, const TensorList& y) { row##_(x, y); }); \
    expect_refused([](const TensorList& x, const TensorList& y) { row##_(y, x); }); \
  }
#include "lorry/formula/pointwise.def"
}

TEST(UndefinedInLists, other_list_functions_refuse_them) {
  expect_refused([](const TensorList& x, const TensorList& y) { add(x, y, 2); });
  expect_refused([](const TensorList& x, const TensorList& y) { sub_(y, x, 2); });
  expect_refused([](const TensorList& x, const TensorList& y) { where(x, y, y); });
  expect_refused([](const TensorList& x, const TensorList&) { clamp(x, 0, 1); });
  expect_refused([](const TensorList& x, const TensorList&) { clamp_(x, 0, 1); });
  expect_refused([](const TensorList& x, const TensorList& y) { lerp(y, x, 0.5); });
  expect_refused([](const TensorList& x, const TensorList& y) { lerp_(x, y, 0.5); });
  expect_refused([](const TensorList& x, const TensorList& y) { addcmul(y, x, y); });
  expect_refused([](const TensorList& x, const TensorList& y) { addcmul_(x, y, y); });
  expect_refused([](const TensorList& x, const TensorList& y) { addcdiv(y, y, x); });
  expect_refused([](const TensorList& x, const TensorList& y) { copy_(x, y); });
  expect_refused([](const TensorList& x, const TensorList& y) { copy_(y, x); });
  expect_refused([](const TensorList& x, const TensorList&) { fill_(x, 1); });
  expect_refused([](const TensorList& x, const TensorList&) { zero_(x); });
  expect_refused([](const TensorList& x, const TensorList&) { to(x, kF64); });
  expect_refused([](const TensorList& x, const TensorList&) { norm(x, 2); });
  expect_refused([](const TensorList& x, const TensorList&) { norms(x, 2); });
  expect_refused([](const TensorList& x, const TensorList&) { total_norm(x, 2); });
  expect_refused([](const TensorList& x, const TensorList&) { clip_norm_(x, 1); });
  expect_refused([](const TensorList& x, const TensorList&) { x.like(); });
}

TEST(UndefinedInLists, numbers_that_are_no_dtype_are_refused) {
  const TensorList x(std::vector<Tensor>{ones({2})});
  EXPECT_THROW(to(x, static_cast<DType>(77)), DTypeError);
  EXPECT_THROW(norm(x, 2, static_cast<DType>(77)), DTypeError);
  EXPECT_THROW(x.like(static_cast<DType>(77)), DTypeError);
}

}  // namespace
}  // namespace lorry::foreach
