// Every row over broadcast, strided, transposed and expanded operands, ranks 0 to 8 and empty tensors: the same as over
// row-major copies.

#include <gtest/gtest.h>

#include "lorry/formula/pointwise.h"
#include "lorry/ops/dispatch/door.h"
#include "tests/ops/operands.h"

namespace lorry::test {
namespace {

class PointwiseShapes : public testing::TestWithParam<int> {
 protected:
  Op op() const { return static_cast<Op>(GetParam()); }
  int arity() const { return kPointwise[GetParam()].arity; }
  DType dtype() const {
    const Domain d = kPointwise[GetParam()].domain;
    return d == Domain::whole || d == Domain::integer ? kI32 : kF32;
  }
  /// The type of operand k: a condition is bool.
  DType operand_type(int k) const { return op() == Op::where && k == 0 ? kBool : dtype(); }

  Tensor run(const std::vector<Tensor>& operands) const {
    return ops::pointwise(op(), std::vector<Operand>(operands.begin(), operands.end()));
  }

  /// Compares with the row over row-major copies of the operands.
  void check(const std::vector<Tensor>& operands) const {
    Dims sizes = operands[0].sizes();
    for (const Tensor& x : operands) sizes = broadcast(sizes, x.sizes());
    std::vector<Tensor> copies;
    for (const Tensor& x : operands) copies.push_back(materialise(x, sizes));
    ASSERT_TRUE(same_values(run(operands), run(copies)));
  }
};

/// Rows of several operands, and rows whose first operand can be written (that of where is a condition).
class PointwiseSeveral : public PointwiseShapes {};
class PointwiseInPlace : public PointwiseShapes {};

TEST_P(PointwiseShapes, broadcasts_and_takes_any_strides) {
  const std::vector<std::function<Tensor(DType, uint64_t)>> layouts = {
      [](DType t, uint64_t s) {
        return random_tensor({3, 4, 70}, t, s);
      },
      [](DType t, uint64_t s) {
        return random_strided({3, 4, 70}, {1, 3, 12}, t, s);
      },
      [](DType t, uint64_t s) {
        return random_strided({3, 4, 70}, {640, 160, 2}, t, s);
      },
      [](DType t, uint64_t s) {
        return random_strided({3, 4, 70}, {0, 70, 1}, t, s);
      },
      [](DType t, uint64_t s) {
        return random_tensor({4, 1}, t, s);
      },
      [](DType t, uint64_t s) { return random_tensor({70}, t, s); },
      [](DType t, uint64_t s) {
        return random_tensor({3, 1, 1}, t, s);
      },
      [](DType t, uint64_t s) { return random_tensor({}, t, s); },
      [](DType t, uint64_t s) {
        return random_strided({3, 1, 70}, {1, 1, 3}, t, s);
      },
  };
  for (size_t first = 0; first < layouts.size(); ++first) {
    for (size_t step = 0; step < layouts.size(); ++step) {
      std::vector<Tensor> operands;
      for (int k = 0; k < arity(); ++k)
        operands.push_back(layouts[(first + static_cast<size_t>(k) * step) % layouts.size()](
            operand_type(k), 10 + static_cast<uint64_t>(k)));
      SCOPED_TRACE(testing::Message() << "layouts " << first << " + " << step);
      check(operands);
      if (HasFatalFailure() || arity() == 1) break;
    }
  }
}

TEST_P(PointwiseShapes, takes_every_rank) {
  for (int rank = 0; rank <= kMaxRank; ++rank) {
    Dims sizes, reversed;
    int64_t stride = 1;
    for (int d = 0; d < rank; ++d) {
      sizes.push_back(d % 3 == 2 ? 3 : 2);
      reversed.push_back(stride);
      stride *= sizes[d];
    }
    std::vector<Tensor> operands;
    for (int k = 0; k < arity(); ++k)
      operands.push_back(k % 2 == 0 ? random_strided(sizes, reversed, operand_type(k), 3)
                                    : random_tensor(sizes, operand_type(k), 4));
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    check(operands);
  }
}

TEST_P(PointwiseShapes, takes_empty_tensors) {
  for (const Dims& sizes : {Dims{0}, Dims{2, 0, 3}, Dims{0, 0}}) {
    std::vector<Tensor> operands;
    for (int k = 0; k < arity(); ++k)
      operands.push_back(k == 1 ? random_tensor({1}, operand_type(k), 1) : empty(sizes, {operand_type(k)}));
    EXPECT_EQ(run(operands).sizes(), sizes);
  }
}

TEST_P(PointwiseShapes, spreads_large_tensors_over_threads_with_the_same_result) {
  const int64_t n = 100003;
  std::vector<Tensor> operands, parts;
  for (int k = 0; k < arity(); ++k)
    operands.push_back(random_tensor({n}, operand_type(k), 20 + static_cast<uint64_t>(k)));
  const Tensor whole = run(operands);
  for (const int64_t begin : {int64_t{0}, n / 2 - 50, n - 100}) {
    std::vector<Tensor> slices;
    for (const Tensor& x : operands) slices.push_back(view_of(x, {100}, {1}, begin));
    ASSERT_TRUE(same_values(view_of(whole, {100}, {1}, begin), run(slices)));
  }
}

TEST_P(PointwiseSeveral, refuses_shapes_that_do_not_broadcast) {
  std::vector<Tensor> operands;
  for (int k = 0; k < arity(); ++k) operands.push_back(random_tensor({k == 1 ? 3 : 2}, operand_type(k), 1));
  EXPECT_THROW(run(operands), ShapeError);
}

TEST_P(PointwiseShapes, refuses_undefined_operands) {
  std::vector<Tensor> operands;
  for (int k = 0; k + 1 < arity(); ++k) operands.push_back(random_tensor({2}, operand_type(k), 1));
  operands.emplace_back();
  EXPECT_THROW(run(operands), ValueError);
}

TEST_P(PointwiseInPlace, writes_into_its_first_operand_or_refuses_and_leaves_it) {
  std::vector<Tensor> operands;
  for (int k = 0; k < arity(); ++k)
    operands.push_back(random_tensor({5, 7}, operand_type(k), 30 + static_cast<uint64_t>(k)));
  for (const bool strided : {false, true}) {
    const Tensor self = strided ? random_strided({5, 7}, {2, 10}, dtype(), 30) : random_tensor({5, 7}, dtype(), 30);
    std::vector<Tensor> given = operands;
    given[0] = self;
    const Tensor before = materialise(self, {5, 7}), want = run(operands);
    const std::vector<Operand> list(given.begin(), given.end());
    if (can_store(want.dtype(), self.dtype())) {
      ops::pointwise_into(op(), self, list);
      self.storage().written_by("test");
      ASSERT_TRUE(same_values(self, want.to(self.dtype())));
    } else {
      EXPECT_THROW(ops::pointwise_into(op(), self, list), DTypeError);
      ASSERT_TRUE(same_values(self, before));
    }
  }
}

TEST_P(PointwiseShapes, writes_strided_results_of_wider_types) {
  std::vector<Tensor> operands;
  for (int k = 0; k < arity(); ++k)
    operands.push_back(random_tensor({6, 9}, operand_type(k), 40 + static_cast<uint64_t>(k)));
  const Tensor want = run(operands);
  const Tensor out = empty_strided({6, 9}, {2, 13}, {kF64});
  const std::vector<Operand> list(operands.begin(), operands.end());
  ops::pointwise_into(op(), out, list);
  ASSERT_TRUE(same_values(out, want.to(kF64)));
  EXPECT_THROW(ops::pointwise_into(op(), empty({9, 6}, {kF64}), list), ShapeError);
}

template <class Predicate>
auto rows(Predicate&& predicate) {
  std::vector<int> chosen;
  for (int p = 0; p < kPointwiseCount; ++p)
    if (predicate(p)) chosen.push_back(p);
  return testing::ValuesIn(chosen);
}
const auto kRowName = [](const auto& info) { return std::string(kPointwise[info.param].name); };
INSTANTIATE_TEST_SUITE_P(Rows, PointwiseShapes, testing::Range(0, kPointwiseCount), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, PointwiseSeveral, rows([](int p) { return kPointwise[p].arity > 1; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, PointwiseInPlace, rows([](int p) { return static_cast<Op>(p) != Op::where; }), kRowName);

// ---- overlap --------------------------------------------------------------------------------------------------------

TEST(PointwiseOverlap, in_place_on_itself_is_fine) {
  const Tensor x = random_tensor({64}, kF32, 1), want = mul(x, x);
  x.mul_(x);
  EXPECT_TRUE(same_values(x, want));
}

TEST(PointwiseOverlap, an_operand_that_shares_part_of_the_written_memory_is_refused) {
  const Tensor x = random_tensor({65}, kF32, 1), before = materialise(x, {65});
  const Tensor front = view_of(x, {64}, {1}), back = view_of(x, {64}, {1}, 1);
  EXPECT_THROW(front.add_(back), ShapeError);
  EXPECT_THROW(add_out(front, back, 1), ShapeError);
  EXPECT_THROW(front.copy_(back), ShapeError);
  EXPECT_TRUE(same_values(x, before));
}

TEST(PointwiseOverlap, views_that_interleave_without_sharing_elements_work) {
  const Tensor x = random_tensor({32, 2}, kF32, 1);
  const Tensor even = view_of(x, {32}, {2}), odd = view_of(x, {32}, {2}, 1);
  const Tensor want = even + odd;
  even.add_(odd);
  EXPECT_TRUE(same_values(even, want));
  even.copy_(odd);
  EXPECT_TRUE(same_values(even, odd));
}

TEST(PointwiseOverlap, strided_views_that_share_elements_read_before_they_write) {
  const Tensor x = random_tensor({8, 5}, kF32, 1);
  const Tensor left = view_of(x, {8, 3}, {5, 1}), right = view_of(x, {8, 3}, {5, 1}, 1);
  const Tensor want = left + right;
  left.add_(right);
  EXPECT_TRUE(same_values(left, want));
}

TEST(PointwiseOverlap, in_place_on_an_expanded_tensor_is_refused) {
  const Tensor row = random_tensor({1, 4}, kF32, 1);
  const Tensor expanded = view_of(row, {3, 4}, {0, 1});
  EXPECT_THROW(expanded.add_(1), ShapeError);
  EXPECT_THROW(expanded.exp_(), ShapeError);
  EXPECT_THROW(expanded.copy_(random_tensor({3, 4}, kF32, 2)), ShapeError);
}

TEST(PointwiseOverlap, in_place_does_not_broadcast_self) {
  const Tensor x = random_tensor({4}, kF32, 1);
  EXPECT_THROW(x.add_(random_tensor({3, 4}, kF32, 2)), ShapeError);
  EXPECT_THROW(random_tensor({1}, kF32, 1).mul_(x), ShapeError);
}

// ---- layouts of results ---------------------------------------------------------------------------------------------

TEST(PointwiseLayout, dense_operands_that_agree_pass_their_strides_on) {
  const Tensor a = random_strided({4, 6}, {1, 4}, kF32, 1), b = random_strided({4, 6}, {1, 4}, kF32, 2),
               c = random_tensor({4, 6}, kF32, 3);
  EXPECT_EQ(exp(a).strides(), (Dims{1, 4}));
  EXPECT_EQ((a + b).strides(), (Dims{1, 4}));
  EXPECT_EQ((a + 1).strides(), (Dims{1, 4}));
  EXPECT_EQ(eq(a, b).strides(), (Dims{1, 4}));
  EXPECT_EQ((a + c).strides(), (Dims{6, 1}));
  EXPECT_EQ((a + random_tensor({6}, kF32, 4)).strides(), (Dims{1, 4}));
  EXPECT_EQ(exp(random_strided({4, 6}, {12, 2}, kF32, 1)).strides(), (Dims{6, 1}));
}

}  // namespace
}  // namespace lorry::test
