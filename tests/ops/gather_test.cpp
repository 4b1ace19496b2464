#include <gtest/gtest.h>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;
using test::expect_elements;
using test::Shapes;

Tensor copy_of(const Tensor& x) {
  const Tensor y = empty(x.sizes(), x.options());
  test::fill_with(y, [&](const Coordinates& at) { return element(x, at); });
  return y;
}

/// A random tensor, a dimension of it, and an index for gather and scatter.
struct Case {
  explicit Case(uint32_t seed) : shapes(seed) {
    dtype = kDTypes[shapes.number(1, kDTypeCount - 1)];
    x = shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(1, 5))), dtype, false);
    test::fill_with(x, [&](const Coordinates&) { return static_cast<double>(shapes.number(0, 20)); });
    dim = shapes.number(0, x.dim() - 1);
    Dims sizes;
    for (int64_t d = 0; d < x.dim(); ++d)
      sizes.push_back(d == dim ? (x.size(d) == 0 ? 0 : shapes.number(0, 5)) : shapes.number(0, x.size(d)));
    index = shapes.tensor(sizes, shapes.coin(0.8) ? kI64 : kI32, true);
    test::fill_with(index, [&](const Coordinates&) { return static_cast<double>(shapes.number(0, x.size(dim) - 1)); });
  }
  Coordinates target(Coordinates at) const {
    at[static_cast<size_t>(dim)] = static_cast<int64_t>(element(index, at));
    return at;
  }
  Shapes shapes;
  DType dtype;
  Tensor x, index;
  int64_t dim;
};

template <class Body>
void on_cases(const Body& body) {
  for (uint32_t seed = 0; seed < 500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Case c(seed);
    body(c);
  }
}

TEST(Gather, reads_the_element_that_each_index_names) {
  on_cases([](Case& c) {
    expect_elements(c.x.gather(c.shapes.coin() ? c.dim : c.dim - c.x.dim(), c.index), c.index.sizes(),
                    [&](const Coordinates& at) { return element(c.x, c.target(at)); });
  });
}

TEST(Scatter, writes_or_adds_in_row_major_order) {
  on_cases([](Case& c) {
    Dims sizes = c.index.sizes();
    for (int64_t& size : sizes) size += c.shapes.number(0, 1);
    const Tensor source = c.shapes.tensor(sizes, c.dtype), written = copy_of(c.x), added = copy_of(c.x),
                 filled = copy_of(c.x);
    test::fill_with(source, [&](const Coordinates& at) { return static_cast<double>((at[0] * 7 + at.back()) % 9); });
    test::for_each_coordinate(c.index.sizes(), [&](const Coordinates& at) {
      test::set_element(written, c.target(at), element(source, at));
      test::set_element(added, c.target(at), element(added, c.target(at)) + element(source, at));
      test::set_element(filled, c.target(at), 3);
    });
    const Tensor x = copy_of(c.x);
    expect_elements(x.scatter(c.dim, c.index, source), x.sizes(),
                    [&](const Coordinates& at) { return element(written, at); });
    expect_elements(x.scatter(c.dim, c.index, 3), x.sizes(),
                    [&](const Coordinates& at) { return element(filled, at); });
    expect_elements(x.scatter_add(c.dim, c.index, source), x.sizes(),
                    [&](const Coordinates& at) { return element(added, at); });
    expect_elements(x, x.sizes(), [&](const Coordinates& at) { return element(c.x, at); });
    c.x.scatter_add_(c.dim, c.index, source);
    expect_elements(c.x, c.x.sizes(), [&](const Coordinates& at) { return element(added, at); });
  });
}

TEST(IndexRows, select_add_copy_and_fill_act_on_whole_slices) {
  on_cases([](Case& c) {
    const int64_t size = c.x.size(c.dim), count = size == 0 ? 0 : c.shapes.number(0, 5);
    const Tensor index = c.shapes.tensor({count}, c.shapes.coin(0.8) ? kI64 : kI32);
    test::fill_with(index, [&](const Coordinates&) { return static_cast<double>(c.shapes.number(0, size - 1)); });
    Dims sizes = c.x.sizes();
    sizes[static_cast<int>(c.dim)] = count;
    const auto target = [&](Coordinates at) {
      at[static_cast<size_t>(c.dim)] = static_cast<int64_t>(element(index, {at[static_cast<size_t>(c.dim)]}));
      return at;
    };
    expect_elements(c.x.index_select(c.dim, index), sizes,
                    [&](const Coordinates& at) { return element(c.x, target(at)); });
    const Tensor source = c.shapes.tensor(sizes, c.dtype), copied = copy_of(c.x), added = copy_of(c.x),
                 filled = copy_of(c.x);
    test::fill_with(source, [&](const Coordinates& at) { return static_cast<double>((at[0] * 5 + at.back()) % 7); });
    test::for_each_coordinate(sizes, [&](const Coordinates& at) {
      test::set_element(copied, target(at), element(source, at));
      test::set_element(added, target(at), element(added, target(at)) + 2 * element(source, at));
      test::set_element(filled, target(at), 4);
    });
    expect_elements(c.x.index_copy(c.dim, index, source), c.x.sizes(),
                    [&](const Coordinates& at) { return element(copied, at); });
    expect_elements(c.x.index_add(c.dim, index, source, 2), c.x.sizes(),
                    [&](const Coordinates& at) { return element(added, at); });
    expect_elements(c.x.index_fill(c.dim, index, 4), c.x.sizes(),
                    [&](const Coordinates& at) { return element(filled, at); });
  });
}

TEST(TakeAlongDim, broadcasts_the_other_dimensions_and_wraps_negative_indices) {
  const Tensor x = arange(12).reshape({3, 4});
  EXPECT_EQ(x.take_along_dim(tensor({{1}, {-1}, {0}}), 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 7, 8}));
  EXPECT_EQ(x.take_along_dim(tensor({{2, 0}}), 1).sizes(), (Dims{3, 2}));
  EXPECT_EQ(x.take_along_dim(tensor({11, 0, -2})).to_vector<int64_t>(), (std::vector<int64_t>{11, 0, 10}));
  EXPECT_THROW_IN_TIME(x.take_along_dim(tensor({{4}}), 1), IndexError);
  EXPECT_THROW(x.take_along_dim(tensor({0}), 1), ShapeError);
  EXPECT_EQ(arange(4).view({1, 4}).expand({3, 4}).take_along_dim(tensor({{-1}, {0}, {-4}}), 1).to_vector<int64_t>(),
            (std::vector<int64_t>{3, 0, 0}));
}

TEST(TakeAlongDim, a_wrong_index_is_named_as_it_was_given) {
  const Tensor x = zeros({3, 4}, {.device = kCPU});
  for (const int64_t wrong : {4, -5}) {
    const std::string said = test::message<IndexError>([&] {
      x.take_along_dim(tensor({{int64_t{0}, wrong}}, {.dtype = kI64, .device = kCPU}), 1);
    });
    EXPECT_EQ(said.find("take_along_dim: index out of range; got " + std::to_string(wrong) + " at "), 0u) << said;
  }
}

TEST(Gather, long_rows_and_many_threads_give_the_same_result) {
  const int before = cpu::threads();
  manual_seed(5);
  const Tensor x = randn({300, 700}), index = randint(300, {900}), source = randn({900, 700}),
               columns = randint(700, {300, 900});
  std::vector<float> rows, sums, scattered;
  for (const int threads : {1, 2, 3}) {
    cpu::set_threads(threads);
    const auto row = x.index_select(0, index).to_vector<float>(),
               sum = x.index_add(0, index, source).to_vector<float>(),
               scatter = x.scatter_add(1, columns, source.narrow(0, 0, 300).repeat({1, 2}).narrow(1, 0, 900))
                             .to_vector<float>();
    if (threads == 1) rows = row, sums = sum, scattered = scatter;
    EXPECT_EQ(row, rows);
    EXPECT_EQ(sum, sums);
    EXPECT_EQ(scatter, scattered);
  }
  cpu::set_threads(before);
}

TEST(IndexRows, many_rows_are_added_and_copied_in_order) {
  manual_seed(6);
  for (const int64_t count : {2, 31, 32, 33, 100, 1025, 8191, 8192, 8193})
    for (const int64_t size : {1, 7, 5000})
      for (const int64_t width : {1, 3, 20}) {
        SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(size) + " x " + std::to_string(width));
        const Tensor x = randn({size, width}), source = randn({count, width}), index = randint(size, {count});
        std::vector<float> copied = x.to_vector<float>(), added = copied;
        const std::vector<float> from = source.to_vector<float>();
        const std::vector<int64_t> at = index.to_vector<int64_t>();
        for (size_t i = 0; i < from.size(); ++i) {
          const auto w = static_cast<size_t>(width), to = static_cast<size_t>(at[i / w]) * w + i % w;
          copied[to] = from[i];
          added[to] += from[i];
        }
        EXPECT_EQ(x.index_copy(0, index, source).to_vector<float>(), copied);
        EXPECT_EQ(x.index_add(0, index, source).to_vector<float>(), added);
      }
}

/// The source begins `shift` elements after an aligned address.
template <class T>
void check_long_rows(int64_t count, int64_t size, int64_t width, int64_t shift, DType dtype) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  SCOPED_TRACE(fmt::format("{} of {} x {} {}, {} off", count, size, width, name(dtype), shift));
  const Tensor x = randn({size, width}).to(dtype),
               source = randn({count * width + shift}).to(dtype).narrow(0, shift, count * width).view({count, width}),
               index = randint(-size, size, {count});
  std::vector<T> copied = x.to_vector<T>(), added = copied;
  const std::vector<T> from = source.to_vector<T>();
  const std::vector<int64_t> at = index.to_vector<int64_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    const auto w = static_cast<size_t>(width);
    const int64_t row = at[i / w] + (at[i / w] < 0 ? size : 0);
    const size_t to = static_cast<size_t>(row) * w + i % w;
    copied[to] = from[i];
    added[to] = static_cast<T>(static_cast<Wide>(added[to]) + static_cast<Wide>(from[i]));
  }
  const auto same = [](const Tensor& got, const std::vector<T>& want) {
    const std::vector<T> elements = got.to_vector<T>();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(static_cast<Wide>(elements[i]), static_cast<Wide>(want[i])) << i;
  };
  same(x.clone().index_put_({index}, source), copied);
  same(x.clone().index_put_({index}, source, true), added);
}

TEST(IndexRows, long_rows_are_added_and_copied_in_order) {
  manual_seed(7);
  for (const int64_t count : {2, 33, 700})
    for (const int64_t size : {1, 50, 3000})
      for (const int64_t width : {73, 74, 296, 768, 1100})
        for (const int64_t shift : {0, 1, 4}) {
          if (count * width > 100'000 && (shift != 0 || size == 1)) continue;
          check_long_rows<float>(count, size, width, shift, kF32);
          if (shift == 0 || width == 768) check_long_rows<BFloat16>(count, size, width, 2 * shift, kBF16);
        }
  check_long_rows<double>(100, 40, 256, 0, kF64);
}

TEST(IndexRows, long_rows_below_other_dimensions_are_copied_in_order) {
  manual_seed(8);
  const Tensor x = randn({3, 40, 5, 64}), source = randn({3, 90, 5, 64}), index = randint(40, {90});
  const Tensor got = x.index_copy(1, index, source);
  Tensor want = x.clone();
  const std::vector<int64_t> at = index.to_vector<int64_t>();
  for (int64_t i = 0; i < 90; ++i) want.select(1, at[static_cast<size_t>(i)]).copy_(source.select(1, i));
  EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
  // The orders inside the rows: dimension 1 of a transposed target.
  const Tensor turned = x.transpose(1, 3).index_copy(3, index, source.transpose(1, 3));
  EXPECT_EQ(turned.transpose(1, 3).to_vector<float>(), want.to_vector<float>());
}

TEST(Gather, wrong_arguments_are_refused_and_nothing_is_written) {
  const Tensor x = zeros({3, 4});
  EXPECT_THROW_IN_TIME(x.gather(0, tensor({{-1}})), IndexError);
  EXPECT_THROW_IN_TIME(x.gather(0, tensor({{3}})), IndexError);
  EXPECT_THROW(x.gather(2, tensor({{0}})), IndexError);
  EXPECT_THROW(x.gather(0, tensor({0})), ShapeError);
  EXPECT_THROW(x.gather(0, zeros({1, 5}, {kI64})), ShapeError);
  EXPECT_THROW(x.gather(0, tensor({{0.0}})), DTypeError);
  EXPECT_THROW_IN_TIME(x.scatter_(0, tensor({{0, 1}, {3, 0}}), 1), IndexError);
  EXPECT_THROW(x.scatter_(0, tensor({{0, 1}}), zeros({1, 1})), ShapeError);
  EXPECT_THROW(x.scatter_(0, tensor({{0}}), zeros({1, 1}, {kF64})), DTypeError);
  EXPECT_THROW(x.scatter_add_(0, tensor({{0}}), Tensor()), ValueError);
  EXPECT_THROW_IN_TIME(x.index_select(0, tensor({3})), IndexError);
  EXPECT_THROW_IN_TIME(x.index_select(0, tensor({-1})), IndexError);
  EXPECT_THROW(x.index_select(0, tensor({{0}})), ShapeError);
  EXPECT_THROW_IN_TIME(x.index_add_(0, tensor({0, 3}), ones({2, 4})), IndexError);
  EXPECT_THROW(x.index_add_(0, tensor({0}), ones({2, 4})), ShapeError);
  EXPECT_THROW(x.index_copy_(0, tensor({0}), ones({1, 4}, {kI64})), DTypeError);
  EXPECT_THROW_IN_TIME(x.index_fill_(0, tensor({-4}), 1), IndexError);
  EXPECT_THROW(zeros({1, 4}).expand({3, 4}).index_fill_(0, tensor({0}), 1), ShapeError);
  if (x.device().is_cpu()) {  // a GPU writes what can be written before it finds the wrong index
    expect_elements(x, {3, 4}, [](const Coordinates&) { return 0.0; });
  }
  x.index_fill_(0, tensor({-1}), 2);
  EXPECT_EQ(element(x, {2, 0}), 2);
}

/// Into a copy, each index is checked as it is written.
TEST(Scatter, into_a_copy_names_a_wrong_index_and_else_writes_what_in_place_does) {
  for (const Dims& sizes : {Dims{7}, Dims{3, 4}, Dims{2, 3, 5}, Dims{300, 400}}) {
    for (int64_t dim = 0; dim < sizes.size(); ++dim) {
      const Tensor x = ones(sizes, {.device = kCPU});
      const Tensor source = arange(x.numel(), {kF32, kCPU}).view(sizes);
      const Tensor index = randint(sizes[static_cast<int>(dim)], sizes, {kI64, kCPU});
      EXPECT_EQ(scatter_add(x, dim, index, source).to_vector<float>(),
                x.clone().scatter_add_(dim, index, source).to_vector<float>());
      EXPECT_EQ(scatter(x, dim, index, source).to_vector<float>(),
                x.clone().scatter_(dim, index, source).to_vector<float>());
      for (const int64_t wrong : {int64_t{-1}, sizes[static_cast<int>(dim)], INT64_MIN, INT64_MAX}) {
        for (const int64_t at : {int64_t{0}, index.numel() / 2, index.numel() - 1}) {
          const Tensor bad = index.clone();
          bad.view({-1}).select(0, at).fill_(wrong);
          const std::string named = fmt::format("index out of range; got {} at ", wrong);
          for (const bool adds : {false, true}) {
            const std::string said = test::message<IndexError>(
                [&] { adds ? scatter_add(x, dim, bad, source) : scatter(x, dim, bad, source); });
            EXPECT_NE(said.find(named), std::string::npos) << said;
          }
          EXPECT_EQ(x.eq(1).sum().item<int64_t>(), x.numel());
        }
      }
    }
  }
}

TEST(Scatter, sums_of_whole_numbers_wrap_around) {
  const Tensor x = tensor({INT64_MAX, int64_t{0}});
  x.scatter_add_(0, tensor({0, 1, 1}), tensor({int64_t{1}, INT64_MAX, INT64_MAX}));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{INT64_MIN, -2}));
}

TEST(Gather, out_forms_write_their_result_into_a_given_tensor) {
  const Tensor x = arange(12).reshape({3, 4}), i = tensor({{2}, {0}, {1}}), out = zeros({1, 3}, {kI64}).t();
  EXPECT_EQ(gather_out(out, x, 1, i).to_vector<int64_t>(), (std::vector<int64_t>{2, 4, 9}));
  EXPECT_EQ(take_along_dim_out(out, x, i.neg(), 1).to_vector<int64_t>(), (std::vector<int64_t>{2, 4, 11}));
  EXPECT_EQ(index_select_out(out, x, 1, tensor({3})).to_vector<int64_t>(), (std::vector<int64_t>{3, 7, 11}));
  EXPECT_EQ(masked_select_out(out.select(1, 0), x, x.gt(8)).to_vector<int64_t>(), (std::vector<int64_t>{9, 10, 11}));
  EXPECT_EQ(nonzero_out(zeros({1, 2}, {kI64}), x.eq(6)).to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(tril_out(zeros({2, 2}), ones({2, 2})).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 1, 1}));
  EXPECT_EQ(triu_out(zeros({2, 2}), ones({2, 2})).to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 0, 1}));
  const std::vector<Tensor> rows = {tensor({1, 2}), tensor({3, 4})};
  EXPECT_EQ(cat_out(zeros({4}, {kI64}), rows).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(stack_out(zeros({2, 2}, {kI64}), rows, 1).to_vector<int64_t>(), (std::vector<int64_t>{1, 3, 2, 4}));
  EXPECT_THROW(gather_out(zeros({3}, {kI64}), x, 1, i), ShapeError);
  EXPECT_THROW(gather_out(out, x.to(kF32), 1, i), DTypeError);
}

TEST(Gather, a_source_that_shares_memory_with_the_target_is_read_first) {
  const Tensor x = arange(4);
  x.scatter_(0, tensor({1, 2, 3}), x);
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 2}));
  x.index_copy_(0, tensor({3, 0}), x.narrow(0, 2, 2));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{2, 0, 1, 1}));
}

}  // namespace
}  // namespace lorry
