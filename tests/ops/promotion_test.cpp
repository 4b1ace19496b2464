// PyTorch's promotion, by cases that torch.result_type documents.

#include "lorry/ops/promotion.h"

#include <gtest/gtest.h>

#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"

namespace lorry::test {
namespace {

Tensor vector_of(DType t) { return empty({2}, {t}); }
Tensor zero_dim(DType t) { return empty({}, {t}).fill_(1); }

TEST(Promotion, tensors_with_dimensions_meet_in_the_lattice) {
  EXPECT_EQ(result_type(vector_of(kU8), vector_of(kI8)), kI16);
  EXPECT_EQ(result_type(vector_of(kBool), vector_of(kU8)), kU8);
  EXPECT_EQ(result_type(vector_of(kI32), vector_of(kF16)), kF16);
  EXPECT_EQ(result_type(vector_of(kF16), vector_of(kBF16)), kF32);
  EXPECT_EQ(result_type(vector_of(kI64), vector_of(kF32)), kF32);
  EXPECT_EQ(result_type(vector_of(kF32), vector_of(kF64)), kF64);
}

TEST(Promotion, a_zero_dim_tensor_matters_only_by_its_kind) {
  EXPECT_EQ(result_type(vector_of(kF32), zero_dim(kF64)), kF32);
  EXPECT_EQ(result_type(vector_of(kI8), zero_dim(kI64)), kI8);
  EXPECT_EQ(result_type(vector_of(kI32), zero_dim(kF64)), kF64);
  EXPECT_EQ(result_type(vector_of(kBool), zero_dim(kI64)), kI64);
  EXPECT_EQ(result_type(zero_dim(kF32), zero_dim(kF64)), kF64);
}

TEST(Promotion, a_number_matters_only_by_its_kind_and_its_default_type) {
  EXPECT_EQ(result_type(vector_of(kI8), 1000), kI8);
  EXPECT_EQ(result_type(vector_of(kI64), 1.5), kF32);
  EXPECT_EQ(result_type(vector_of(kF16), 1.5), kF16);
  EXPECT_EQ(result_type(vector_of(kBool), 1), kI64);
  EXPECT_EQ(result_type(vector_of(kBool), true), kBool);
  EXPECT_EQ(result_type(vector_of(kBool), 1.5), kF32);
  EXPECT_EQ(result_type(zero_dim(kI32), 2.5), kF32);
  EXPECT_EQ(result_type(zero_dim(kF64), 2), kF64);
  EXPECT_EQ(result_type(wrapped_number(2.5), vector_of(kF16)), kF16);
}

TEST(Promotion, operators_compute_in_the_type_in_which_operands_meet) {
  EXPECT_EQ(add(vector_of(kI32).fill_(3), vector_of(kF64).fill_(0.5)).to_vector<double>(),
            (std::vector<double>{3.5, 3.5}));
  EXPECT_EQ(add(vector_of(kU8).fill_(200), vector_of(kU8).fill_(100)).to_vector<int64_t>(),
            (std::vector<int64_t>{44, 44}));
  EXPECT_EQ(add(vector_of(kU8).fill_(200), vector_of(kI8).fill_(-1)).to_vector<int64_t>(),
            (std::vector<int64_t>{199, 199}));
  EXPECT_EQ(div(vector_of(kI64).fill_(1), vector_of(kI64).fill_(4)).dtype(), kF32);
  EXPECT_EQ(sqrt(vector_of(kI32).fill_(9)).to_vector<double>(), (std::vector<double>{3, 3}));
  EXPECT_EQ(lt(vector_of(kU8).fill_(3), -1).to_vector<bool>(), (std::vector<bool>{true, true}));  // 3 < 255
  EXPECT_EQ(add(vector_of(kBool).fill_(1), vector_of(kBool).fill_(1)).to_vector<bool>(),
            (std::vector<bool>{true, true}));
  EXPECT_THROW(sub(vector_of(kBool), vector_of(kBool)), DTypeError);
}

TEST(Promotion, in_place_results_must_be_storable) {
  EXPECT_THROW(vector_of(kI32).fill_(1).add_(0.5), DTypeError);
  EXPECT_THROW(vector_of(kI32).fill_(1).div_(2), DTypeError);
  EXPECT_THROW(vector_of(kBool).fill_(1).add_(1), DTypeError);
  EXPECT_THROW(vector_of(kI64).fill_(1).exp_(), DTypeError);
  EXPECT_EQ(vector_of(kI8).fill_(1).add_(vector_of(kI64).fill_(2)).dtype(), kI8);
  EXPECT_EQ(vector_of(kF16).fill_(1).add_(vector_of(kF64).fill_(2)).to_vector<double>(), (std::vector<double>{3, 3}));
}

}  // namespace
}  // namespace lorry::test
