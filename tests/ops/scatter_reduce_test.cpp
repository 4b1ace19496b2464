// scatter_reduce against loops, with PyTorch's own values for a small case, and scatter with a reduction.

#include <gtest/gtest.h>

#include <map>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"
#include "tests/support/gradcheck.h"

namespace lorry::test {
namespace {

using Values = std::vector<double>;
const char* const kReductions[] = {"sum", "prod", "mean", "amax", "amin"};

double combined(const std::string& reduce, double a, double b) {
  if (reduce == "prod") return a * b;
  if (reduce == "amax") return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
  if (reduce == "amin") return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b);
  return a + b;
}

/// The result along dimension 0 of [rows, columns].
Values by_loops(const Tensor& x, const Tensor& index, const Tensor& source, const std::string& reduce,
                bool include_self) {
  const auto columns = static_cast<size_t>(x.size(1));
  const Values start = elements(x), at = elements(index), from = elements(source);
  std::map<size_t, std::pair<double, int>> found;  // value and count
  for (size_t i = 0; i < at.size(); ++i) {
    const size_t to = static_cast<size_t>(at[i]) * columns + i % columns;
    auto [entry, fresh] = found.try_emplace(to, include_self ? start[to] : from[i], 1);
    if (!include_self && fresh) continue;
    entry->second = {combined(reduce, entry->second.first, from[i]), entry->second.second + 1};
  }
  Values out = start;
  for (const auto& [to, result] : found) {
    out[to] = result.first;
    if (reduce == "mean")
      out[to] = is_floating(x.dtype()) ? result.first / result.second : std::floor(result.first / result.second);
  }
  return out;
}

Tensor positions(const Dims& sizes, int64_t count, uint64_t seed) {
  Generator generator(seed);
  return randint(0, count, sizes, {.dtype = kI64}, &generator);
}

TEST(ScatterReduce, gives_what_pytorch_gives) {
  // torch.tensor([5, 1, 7, 0]).scatter_reduce(0, [0, 0, 1, 1, 3], [3, -4, 2, 2, 0], reduce, include_self)
  const std::map<std::string, std::pair<Values, Values>> whole = {
      {"sum", {{4, 5, 7, 0}, {-1, 4, 7, 0}}},   {"prod", {{-60, 4, 7, 0}, {-12, 4, 7, 0}}},
      {"mean", {{1, 1, 7, 0}, {-1, 2, 7, 0}}},  {"amax", {{5, 2, 7, 0}, {3, 2, 7, 0}}},
      {"amin", {{-4, 1, 7, 0}, {-4, 2, 7, 0}}},
  };
  for (const DType dtype : {kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64}) {
    const Tensor x = tensor_of({4}, dtype, {5, 1, 7, 0}), source = tensor_of({5}, dtype, {3, -4, 2, 2, 0}),
                 index = tensor({0, 0, 1, 1, 3});
    for (const auto& [reduce, want] : whole) {
      SCOPED_TRACE(reduce + " of " + std::string(name(dtype)));
      const bool quotient = reduce == "mean" && is_floating(dtype);
      EXPECT_TRUE(near(x.scatter_reduce(0, index, source, reduce),
                       quotient ? Values{4 / 3.0, 5 / 3.0, 7, 0} : want.first, tolerance(dtype)));
      EXPECT_TRUE(near(x.scatter_reduce(0, index, source, reduce, false),
                       quotient ? Values{-0.5, 2, 7, 0} : want.second, tolerance(dtype)));
    }
  }
}

TEST(ScatterReduce, agrees_with_loops_for_many_meeting_at_few_places) {
  for (const DType dtype : {kI64, kI32, kU8, kF32, kF64})
    for (const std::string reduce : kReductions)
      for (const bool include_self : {true, false}) {
        SCOPED_TRACE(reduce + " of " + std::string(name(dtype)));
        const double limit = reduce == "prod" ? 1.5 : 3;
        const Tensor x = sample({3, 2}, dtype, 1, Memory::transposed, limit),
                     source = sample({500, 2}, dtype, 2, Memory::contiguous, limit);
        const Tensor index = positions({500, 2}, 2, 3),
                     head = reduce == "prod" || is_unsigned(dtype) ? index.slice(0, 0, 12) : index;
        EXPECT_TRUE(near(x.scatter_reduce(0, head, source, reduce, include_self),
                         by_loops(x, head, source, reduce, include_self), 16 * tolerance(dtype)));
      }
}

TEST(ScatterReduce, lines_of_any_length_have_the_bits_of_one_index_after_the_other) {
  for (const DType dtype : {kBool, kU8, kI64, kF16, kBF16, kF32, kF64})
    for (const int64_t length : {4, 33, 128, 129, 300})
      for (const int dim : {0, 1}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", " + std::to_string(length));
        const auto sizes = [&](int64_t along) { return dim == 0 ? Dims{along, 9} : Dims{9, along}; };
        const Tensor x = sample(sizes(21), dtype, 1), source = sample(sizes(length), dtype, 2),
                     index = positions(sizes(length), length == 33 ? 2 : 21, 3);
        const Tensor slow_source = source.cpu(), slow_index = index.cpu();
        for (const std::string reduce : {"sum", "prod", "amax", "amin", "none"}) {
          const auto put = [&](const Tensor& to, const Tensor& at, const Tensor& from) {
            reduce == "none" ? to.scatter_(dim, at, from) : to.scatter_reduce_(dim, at, from, reduce);
          };
          const Tensor got = x.clone(), want = x.clone().cpu();
          put(got, index, source);
          for (int64_t i = 0; i < length; ++i) put(want, slow_index.narrow(dim, i, 1), slow_source.narrow(dim, i, 1));
          EXPECT_TRUE(same_bits(got.cpu(), want)) << reduce;
        }
      }
}

TEST(ScatterReduce, long_lines_leave_what_no_index_names) {
  const Tensor index = positions({200, 400}, 3000, 5), source = sample({200, 400}, kF32, 6), x = zeros({200, 6000});
  const Tensor got = x.scatter(1, index, source), sums = x.scatter_add(1, index, source);
  const std::vector<int64_t> at = index.to_vector<int64_t>();
  const std::vector<float> from = source.to_vector<float>();
  std::vector<float> last(200 * 6000), total(200 * 6000);
  for (size_t i = 0; i < at.size(); ++i) {
    const size_t to = i / 400 * 6000 + static_cast<size_t>(at[i]);
    last[to] = from[i];
    total[to] += from[i];
  }
  EXPECT_EQ(got.to_vector<float>(), last);
  EXPECT_EQ(sums.to_vector<float>(), total);
}

TEST(ScatterReduce, lets_a_nan_win) {
  const Tensor x = tensor_of({3}, kF32, {0, kNaN, 1}), source = tensor_of({4}, kF32, {kNaN, 3, 5, -kInf}),
               index = tensor({0, 0, 1, 2});
  EXPECT_TRUE(near(x.scatter_reduce(0, index, source, "amax"), {kNaN, kNaN, 1}, 0));
  EXPECT_TRUE(near(x.scatter_reduce(0, index, source, "amin"), {kNaN, kNaN, -kInf}, 0));
  EXPECT_TRUE(near(x.scatter_reduce(0, index, source, "amax", false), {kNaN, 5, -kInf}, 0));
}

TEST(ScatterReduce, of_truth_values_combines_them_logically) {
  const Tensor x = tensor_of({3}, kBool, {1, 1, 0}), source = tensor_of({4}, kBool, {1, 0, 0, 1}),
               index = tensor({0, 0, 2, 2});
  EXPECT_EQ(elements(x.scatter_reduce(0, index, source, "prod")), (Values{0, 1, 0}));
  EXPECT_EQ(elements(x.scatter_reduce(0, index, source, "amin", false)), (Values{0, 1, 0}));
  EXPECT_EQ(elements(x.scatter_reduce(0, index, source, "amax")), (Values{1, 1, 1}));
  EXPECT_EQ(elements(x.scatter_reduce(0, index, source, "sum", false)), (Values{1, 1, 1}));
  EXPECT_THROW(x.scatter_reduce(0, index, source, "mean"), DTypeError);
}

TEST(ScatterReduce, writes_nothing_when_it_refuses) {
  const Tensor x = ones({3}), index = tensor({0, 0, 2}), source = ones({3});
  expect_error<ValueError>([&] { x.scatter_reduce_(0, index, source, "max"); },
                           "scatter_reduce: unknown reduction; got 'max'");
  EXPECT_THROW(x.scatter_reduce_(0, index, source.slice(0, 0, 2), "sum", false), ShapeError);
  EXPECT_THROW(x.scatter_reduce_(0, index, source.to(kF64), "prod", false), DTypeError);
  EXPECT_THROW(x.scatter_reduce_(0, index, Tensor(), "prod", false), Error);
  EXPECT_THROW(x.scatter_(0, index, ones({}), "add"), ShapeError) << "a number as a tensor covers one index";
  EXPECT_THROW(x.scatter_(0, index, 2, "mean"), ValueError);
  EXPECT_EQ(elements(x), (Values{1, 1, 1}));
}

TEST(ScatterReduce, reads_a_source_and_an_index_that_lie_under_what_it_writes) {
  for (const std::string reduce : kReductions)
    for (const bool include_self : {true, false}) {
      SCOPED_TRACE(reduce);
      const Tensor x = tensor_of({4}, kI64, {1, 3, 1, 0}), y = x.clone(), z = x.clone();
      const Tensor want = x.scatter_reduce(0, x.clone(), x.clone(), reduce, include_self);
      EXPECT_TRUE(same_bits(x.scatter_reduce_(0, x, x, reduce, include_self), want));
      EXPECT_TRUE(same_bits(y.scatter_reduce_(0, y, z, reduce, include_self), want));
      EXPECT_TRUE(same_bits(z.scatter_reduce_(0, z.clone(), z, reduce, include_self), want));
    }
}

TEST(ScatterReduce, gradients_agree_with_central_differences_twice_whatever_the_zeros) {
  const Tensor index = tensor({{0, 1, 2}, {0, 1, 1}, {0, 0, 1}, {2, 0, 2}});
  for (const std::string reduce : kReductions)
    for (const bool include_self : {true, false})
      for (const int zeros : {0, 1, 2, 3}) {
        if (zeros > 0 && reduce != "prod") continue;
        SCOPED_TRACE(reduce + (include_self ? " with self, " : " without, ") + std::to_string(zeros) + " zeros");
        const Tensor x = sample({3, 3}, kF64, 4), source = sample({5, 4}, kF64, 5);
        for (int64_t i = 0; i < 20; ++i)
          set_element(source, i, element(source, i) + 0.37 + 0.011 * static_cast<double>(i));
        for (int64_t k = 0; k < zeros; ++k) set_element(source, 4 * k, 0);  // all meet at one place
        if (zeros == 1) set_element(x, 0, 0);                               // with self, where that counts
        x.requires_grad_(), source.requires_grad_();
        const auto f = [&](auto& v) { return v[0].mul(1).scatter_reduce(0, index, v[1], reduce, include_self); };
        EXPECT_TRUE(gradcheck(f, {x, source}));
        EXPECT_TRUE(gradgradcheck([&](auto& v) { return f(v).square(); }, {x, source}));
      }
}

TEST(ScatterReduce, equals_share_the_gradient_of_an_extreme) {
  const Tensor x = tensor_of({2}, kF32, {3, 1}).requires_grad_(),
               source = tensor_of({4}, kF32, {3, 3, 2, 1}).requires_grad_();
  const std::vector<Tensor> grads =
      autograd::grad({x.scatter_reduce(0, tensor({0, 0, 0, 1}), source, "amax").sum()}, {x, source});
  EXPECT_TRUE(near(grads[0], {1 / 3.0, 0.5}, 1e-6));
  EXPECT_TRUE(near(grads[1], {1 / 3.0, 1 / 3.0, 0, 0.5}, 1e-6));
}

TEST(Scatter, with_a_reduction_adds_or_multiplies) {
  const Tensor index = tensor({0, 0});
  EXPECT_EQ(elements(zeros({3}).scatter(0, index, tensor({2.0, 3.0}), "add")), (Values{5, 0, 0}));
  EXPECT_EQ(elements(ones({3}).scatter(0, index, 3, "multiply")), (Values{9, 1, 1}));
  EXPECT_EQ(elements(ones({3}).scatter(0, index, 3, "add")), (Values{7, 1, 1}));
  const Tensor x = full({3}, 2.0), out = empty({3});
  EXPECT_TRUE(x.scatter_(0, index, 3, "multiply").is_same(x));
  EXPECT_EQ(elements(x), (Values{18, 2, 2}));
  EXPECT_EQ(elements(scatter_out(out, x, 0, index, 1, "add")), (Values{20, 2, 2}));
}

TEST(Scatter, refuses_a_number_as_source_of_several_indices) {
  EXPECT_THROW(zeros({3}).scatter_(0, tensor({0, 1, 2}), tensor({1.0}).squeeze(0)), ShapeError);
  EXPECT_EQ(elements(zeros({3}).scatter_(0, tensor({1}), tensor({4.0}).squeeze(0))), (Values{0, 4, 0}));
}

}  // namespace
}  // namespace lorry::test
