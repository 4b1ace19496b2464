#include "lorry/ops/embedding.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/gradcheck.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;

Tensor indices_of(const Dims& sizes, int64_t rows, DType dtype = kI64) {
  return randint(0, rows, sizes, {.dtype = dtype});
}

TEST(Embedding, gathers_rows_for_any_shape_of_indices_and_any_table) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64, kI32}) {
    const Tensor weight = randn({6, 5}).mul(10).to(dtype);
    for (const Tensor& table :
         {weight, weight.t().contiguous().t(), weight.slice(1, 0, 5, 2), weight.narrow(0, 1, 4)}) {
      for (const Dims& sizes : {Dims{}, Dims{4}, Dims{2, 3}, Dims{2, 1, 3, 2}, Dims{0, 3}}) {
        for (const DType whole : {kI64, kI32}) {
          const Tensor indices = indices_of(sizes, table.size(0), whole);
          Dims expected = sizes;
          expected.push_back(table.size(1));
          test::expect_elements(embedding(indices, table), expected, [&](Coordinates at) {
            const int64_t column = at.back();
            at.pop_back();
            return element(table, {static_cast<int64_t>(element(indices, at)), column});
          });
        }
      }
    }
  }
}

TEST(Embedding, gradients_add_up_repeated_rows_and_skip_the_padding) {
  const Tensor indices = indices_of({3, 4}, 5);
  for (const std::optional<int64_t> padding :
       {std::optional<int64_t>(), std::optional<int64_t>(2), std::optional<int64_t>(-1)}) {
    const test::Function f = [&](const std::vector<Tensor>& x) { return embedding(indices, x[0], padding); };
    const int64_t skipped = !padding ? 5 : *padding < 0 ? *padding + 5 : *padding;
    if (!padding) {
      EXPECT_TRUE(test::gradcheck(f, {randn({5, 3}, {kF64}).requires_grad_()}));
      EXPECT_TRUE(test::gradgradcheck([&](const std::vector<Tensor>& x) { return embedding(indices, x[0]).square(); },
                                      {randn({5, 3}, {kF64}).requires_grad_()}));
    }
    const Tensor weight = randn({5, 3}).requires_grad_();
    f({weight}).sum().backward();
    test::expect_elements(weight.grad(), {5, 3}, [&](const Coordinates& at) {
      return at[0] == skipped ? 0.0 : indices.eq(at[0]).sum().item<double>();
    });
  }
}

TEST(Embedding, sixteen_bit_gradients_are_summed_in_f32) {
  const Tensor weight = zeros({2, 1}, {kBF16}).requires_grad_();
  embedding(zeros({4096}, {kI64}), weight).sum().backward();
  EXPECT_EQ(element(weight.grad(), {0, 0}), 4096);  // adding ones in bf16 would stop at 256
}

TEST(Embedding, the_backward_does_not_depend_on_the_number_of_threads) {
  const int before = cpu::threads();
  const Tensor grad = randn({5000, 40}), indices = indices_of({5000}, 7);
  std::vector<Tensor> results;
  for (const int threads : {1, 2, 5}) {
    cpu::set_threads(threads);
    results.push_back(embedding_backward(grad, indices, 7, -1));
  }
  cpu::set_threads(before);
  for (const Tensor& r : results) EXPECT_TRUE(test::bytes_of(r) == test::bytes_of(results[0]));
}

TEST(Embedding, indices_outside_the_table_and_wrong_operands_are_refused) {
  const Tensor weight = ones({5, 3});
  const Tensor bad = zeros({2, 2}, {kI64});
  test::set_element(bad, {1, 0}, 5);
  EXPECT_THROW_IN_TIME(embedding(bad, weight), IndexError);
  test::set_element(bad, {1, 0}, -1);
  EXPECT_THROW_IN_TIME(embedding(bad, weight), IndexError);
  const std::string said = test::message<IndexError>([&] {
    embedding(bad, weight);
    device::synchronize(default_device());
  });
  EXPECT_NE(said.find("-1"), std::string::npos) << said;
  EXPECT_THROW(embedding(ones({2}), weight), DTypeError);
  EXPECT_THROW(embedding(zeros({2}, {kI64}), ones({5})), ShapeError);
  EXPECT_THROW(embedding(zeros({2}, {kI64}), weight, 5), IndexError);
  EXPECT_THROW(embedding(zeros({2}, {kI64}), weight, -6), IndexError);
  EXPECT_THROW(embedding(Tensor(), weight), ValueError);
}

}  // namespace
}  // namespace lorry
