#include "lorry/ops/indexing.h"

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
using test::message;
using test::Shapes;

/// The definition of mixed indexing, independent of how the operator works: every dimension of the view that the plain
/// entries leave, the source positions it runs over, and the indices that some of them carry.
struct Axis {
  int64_t source = -1;             ///< dimension of x, or -1 for a new one
  std::vector<int64_t> positions;  ///< along it
  Tensor index;                    ///< i64, or undefined
};

struct Definition {
  Tensor x;
  std::vector<Axis> axes;
  Coordinates fixed;  ///< per dimension of x, the position that a number chose
  Dims common;
  std::vector<size_t> indexed;

  void finish() {
    for (size_t a = 0; a < axes.size(); ++a) {
      if (!axes[a].index.defined()) continue;
      indexed.push_back(a);
      common = broadcast(common, axes[a].index.sizes());
    }
  }
  bool neighbours() const {
    for (size_t k = 1; k < indexed.size(); ++k)
      if (indexed[k] != indexed[k - 1] + 1) return false;
    return true;
  }
  size_t before() const { return indexed.empty() || !neighbours() ? 0 : indexed[0]; }
  Dims sizes() const {
    Dims out;
    for (size_t a = 0; a < axes.size(); ++a) {
      if (a == before())
        for (const int64_t size : common) out.push_back(size);
      if (!axes[a].index.defined()) out.push_back(static_cast<int64_t>(axes[a].positions.size()));
    }
    if (axes.empty() || before() == axes.size())
      for (const int64_t size : common) out.push_back(size);
    return out;
  }
  /// The element of x that coordinates of the result name.
  Coordinates source(const Coordinates& at) const {
    Coordinates shared, plain;
    for (size_t i = 0; i < at.size(); ++i) {
      const bool inside = i >= before() && i < before() + static_cast<size_t>(common.size());
      (inside ? shared : plain).push_back(at[i]);
    }
    Coordinates from = fixed;
    size_t next = 0;
    for (const Axis& axis : axes) {
      int64_t i = 0;
      if (axis.index.defined()) {
        Coordinates c;
        for (int64_t d = 0; d < axis.index.dim(); ++d) {
          const int64_t shift = common.size() - axis.index.dim();
          c.push_back(axis.index.size(d) == 1 ? 0 : shared[static_cast<size_t>(d + shift)]);
        }
        i = static_cast<int64_t>(element(axis.index, c));
        if (i < 0) i += static_cast<int64_t>(axis.positions.size());
      } else {
        i = plain[next++];
      }
      if (axis.source >= 0) from[static_cast<size_t>(axis.source)] = axis.positions[static_cast<size_t>(i)];
    }
    return from;
  }
};

/// Every position of dimension d.
Axis whole_axis(const Tensor& x, int64_t d) {
  Axis axis{d, {}, {}};
  for (int64_t i = 0; i < x.size(d); ++i) axis.positions.push_back(i);
  return axis;
}

/// Positions of random elements in a dimension of `size`; its sizes broadcast to `common`.
Tensor random_positions(Shapes& shapes, const Dims& common, int64_t size) {
  Dims sizes = common;
  for (int64_t& s : sizes)
    if (shapes.coin(0.2)) s = 1;
  if (sizes.empty()) sizes = {1};
  if (size == 0) sizes[0] = 0;
  const Tensor index = shapes.tensor(sizes, shapes.coin(0.8) ? kI64 : kI32, true);
  test::fill_with(index, [&](const Coordinates&) { return static_cast<double>(shapes.number(-size, size - 1)); });
  return index;
}

/// A random index list for x with its definition.
Definition random_indices(Shapes& shapes, const Tensor& x, std::vector<Index>& list) {
  Definition definition{x, {}, Coordinates(static_cast<size_t>(x.dim()), 0), {}, {}};
  const Dims common = shapes.sizes(static_cast<int>(shapes.number(0, 2)));
  int64_t d = 0;
  bool ellipsis = false;
  while (d < x.dim()) {
    const int64_t size = x.size(d), kind = shapes.number(0, 9);
    if (kind == 0 && size > 0) {
      const int64_t i = shapes.number(-size, size - 1);
      list.push_back(i);
      definition.fixed[static_cast<size_t>(d++)] = i < 0 ? i + size : i;
    } else if (kind <= 2) {
      Axis axis{d, {}, {}};
      const int64_t start = shapes.number(0, 2), stop = shapes.number(0, 5), step = shapes.number(1, 2);
      for (int64_t i = start; i < std::min(stop, size); i += step) axis.positions.push_back(i);
      list.push_back(Slice(start, stop, step));
      definition.axes.push_back(axis);
      ++d;
    } else if (kind == 3) {
      list.push_back(None);
      definition.axes.push_back({-1, {0}, {}});
    } else if (kind == 4 && !ellipsis) {
      ellipsis = true;
      const int64_t count = shapes.number(0, x.dim() - d);
      // The entries that follow must account for the rest, so the Ellipsis ends the list unless it stands for nothing.
      list.push_back(Ellipsis);
      if (count == 0) {
        for (; d < x.dim(); ++d) {
          list.push_back(Slice());
          definition.axes.push_back(whole_axis(x, d));
        }
      }
      for (; d < x.dim(); ++d) definition.axes.push_back(whole_axis(x, d));
    } else if (kind == 5) {
      const Tensor mask = shapes.tensor(Dims{size}, kBool);
      std::vector<int64_t> chosen;
      for (int64_t i = 0; i < size; ++i)
        if (element(mask, {i}) != 0) chosen.push_back(i);
      Axis axis = whole_axis(x, d++);
      axis.index = from_data(chosen);
      list.push_back(mask);
      definition.axes.push_back(axis);
    } else {
      Axis axis = whole_axis(x, d++);
      axis.index = random_positions(shapes, common, size);
      list.push_back(axis.index);
      definition.axes.push_back(axis);
    }
  }
  definition.finish();
  return definition;
}

/// Runs body with random lists whose indices broadcast and whose result has at most 8 dimensions.
template <class Body>
void on_random_indices(const Body& body) {
  int tried = 0;
  for (uint32_t seed = 0; seed < 1500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const Tensor x = shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(1, 4))), kF64, false);
    std::vector<Index> list;
    try {
      const Definition definition = random_indices(shapes, x, list);
      definition.sizes();
      ++tried;
      body(shapes, x, list, definition);
    } catch (const ShapeError&) {
      EXPECT_THROW(index(x, std::span<const Index>(list)), ShapeError);  // the indices do not broadcast
    }
  }
  EXPECT_GT(tried, 900);
}

TEST(Indexing, any_mixture_of_indices_follows_the_definition) {
  on_random_indices([](Shapes&, const Tensor& x, const std::vector<Index>& list, const Definition& definition) {
    expect_elements(index(x, std::span<const Index>(list)), definition.sizes(),
                    [&](const Coordinates& at) { return element(x, definition.source(at)); });
  });
}

TEST(Indexing, writing_through_any_mixture_touches_exactly_the_selected_elements) {
  on_random_indices([](Shapes& shapes, const Tensor& x, const std::vector<Index>& list, const Definition& definition) {
    const bool accumulate = shapes.coin();
    Dims sizes = definition.sizes();
    for (int64_t& size : sizes)
      if (shapes.coin(0.2) && size > 0) size = 1;  // the value is broadcast
    const Tensor value = shapes.tensor(sizes), expected = empty(x.sizes(), {kF64});
    test::fill_with(expected, [&](const Coordinates& at) { return element(x, at); });
    test::for_each_coordinate(definition.sizes(), [&](const Coordinates& at) {
      Coordinates from = at;
      for (size_t d = 0; d < at.size(); ++d)
        if (sizes[static_cast<int>(d)] == 1) from[d] = 0;
      const Coordinates to = definition.source(at);
      test::set_element(expected, to, element(value, from) + (accumulate ? element(expected, to) : 0.0));
    });
    index_put_(x, std::span<const Index>(list), value, accumulate);
    expect_elements(x, x.sizes(), [&](const Coordinates& at) { return element(expected, at); });
  });
}

TEST(Indexing, numbers_slices_and_none_give_views) {
  const Tensor x = arange(24).reshape({2, 3, 4});
  const Tensor y = x.index({1, None, Slice(0, None, 2)});
  EXPECT_EQ(y.sizes(), (Dims{1, 2, 4}));
  EXPECT_EQ(y.data_ptr(), x.data<int64_t>() + 12);
  EXPECT_EQ(x[1].sizes(), (Dims{3, 4}));
  EXPECT_EQ(x[-1][2][3].item<int64_t>(), 23);
  EXPECT_EQ(x.index({Ellipsis, -1}).sizes(), (Dims{2, 3}));
  x.index_put_({Slice(), 0, Slice(1, 3)}, 7);
  EXPECT_EQ(element(x, {1, 0, 2}), 7);
  EXPECT_EQ(element(x, {1, 0, 3}), 15);
}

TEST(Indexing, separated_indices_come_first_and_neighbours_stay_in_place) {
  const Tensor x = zeros({5, 6, 7, 8}), i = tensor({0, 1, 2});
  EXPECT_EQ(x.index({Slice(), i, i}).sizes(), (Dims{5, 3, 8}));
  EXPECT_EQ(x.index({i, Slice(), i}).sizes(), (Dims{3, 6, 8}));
  EXPECT_EQ(x.index({Slice(), i, Slice(), i}).sizes(), (Dims{3, 5, 7}));
  // A number is a view before the tensors are looked at, so it does not separate them.
  EXPECT_EQ(x.index({i, 0, i}).sizes(), (Dims{3, 8}));
}

TEST(Indexing, truth_values_and_masks_of_several_dimensions) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x.index({true}).sizes(), (Dims{1, 2, 3}));
  EXPECT_EQ(x.index({false}).sizes(), (Dims{0, 2, 3}));
  EXPECT_EQ(x.index({x.gt(3)}).to_vector<int64_t>(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(x.index({tensor({false, true}), Slice(1)}).sizes(), (Dims{1, 2}));
  x.index_put_({x.lt(2)}, -1);
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{-1, -1, 2, 3, 4, 5}));
}

TEST(Indexing, a_number_in_a_tensor_indexes_like_the_number) {
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_EQ(x.index({tensor(1)}).to_vector<int64_t>(), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(x.index({tensor(-1)}).data_ptr(), x[1].data_ptr());
}

TEST(Indexing, an_index_out_of_range_is_named_and_nothing_is_written) {
  const Tensor x = zeros({4, 5}), bad = tensor({{0, 1}, {4, 2}});
  const std::string said = message<IndexError>([&] {
    x.index_put_({bad}, 1);
    device::synchronize(x.device());
  });
  if (x.device().is_cpu()) {
    EXPECT_EQ(said, "index_put: index out of range; got 4 at [1, 0] for dimension 0 of size 4; expected -4 to 3");
    expect_elements(x, {4, 5}, [](const Coordinates&) { return 0.0; });
    EXPECT_EQ(x.version(), 1u);  // that of zeros
  } else {
    EXPECT_EQ(said.find("index_put: index out of range; got 4; expected -4 to 3"), 0u) << said;
  }
  EXPECT_THROW_IN_TIME(x.index({Slice(), tensor({-6})}), IndexError);
  EXPECT_THROW(x.index({5}), IndexError);
  EXPECT_THROW(x.index({0, 0, 0}), IndexError);
  EXPECT_THROW(x.index({Ellipsis, Ellipsis}), IndexError);
  EXPECT_THROW(x.index({tensor({true, false})}), IndexError);
  EXPECT_THROW(x.index({tensor({0.5})}), DTypeError);
  EXPECT_THROW(x.index({Tensor()}), ValueError);
  EXPECT_THROW(x.index({tensor({0, 1}), tensor({0, 1, 2})}), ShapeError);
  EXPECT_THROW(x.index_put_({tensor({0, 1})}, zeros({3, 5})), ShapeError);
  EXPECT_THROW(x.index_put_({tensor({0, 1})}, zeros({2, 5}, {kF64})), DTypeError);
  EXPECT_THROW(zeros({1}).expand({4}).index_put_({tensor({0, 1})}, 1), ShapeError);
}

TEST(Indexing, a_value_that_shares_memory_with_the_target_is_read_first) {
  const Tensor x = arange(6);
  x.index_put_({tensor({1, 2, 3, 4, 5})}, x.narrow(0, 0, 5));
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 2, 3, 4}));
  const Tensor i = tensor({2, 0, 1});
  i.index_put_({i}, tensor({5, 6, 7}));
  EXPECT_EQ(i.to_vector<int64_t>(), (std::vector<int64_t>{6, 7, 5}));
}

TEST(Indexing, accumulated_sums_do_not_depend_on_the_number_of_threads) {
  const int before = cpu::threads();
  manual_seed(3);
  const Tensor index = randint(50, {20000}), values = randn({20000, 33});
  std::vector<float> reference;
  for (const int threads : {1, 2, 5}) {
    cpu::set_threads(threads);
    const Tensor sums = zeros({50, 33});
    sums.index_put_({index}, values, true);
    if (threads == 1) reference = sums.to_vector<float>();
    EXPECT_EQ(sums.to_vector<float>(), reference);
  }
  cpu::set_threads(before);
}

TEST(Indexing, nonzero_and_masked_select_list_elements_in_row_major_order) {
  for (uint32_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const DType dtype = kDTypes[shapes.number(0, kDTypeCount - 1)];
    const Tensor x = shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(0, 8))), dtype);
    test::fill_with(x, [&](const Coordinates&) { return shapes.coin() ? 0.0 : 1.0; });
    std::vector<int64_t> coordinates;
    std::vector<double> chosen;
    const Tensor values = shapes.tensor(x.sizes());
    test::for_each_coordinate(x.sizes(), [&](const Coordinates& at) {
      if (element(x, at) == 0) return;
      coordinates.insert(coordinates.end(), at.begin(), at.end());
      chosen.push_back(element(values, at));
    });
    EXPECT_EQ(x.nonzero().sizes(), (Dims{static_cast<int64_t>(chosen.size()), x.dim()}));
    EXPECT_EQ(x.nonzero().to_vector<int64_t>(), coordinates);
    EXPECT_EQ(values.masked_select(x.ne(0)).to_vector<double>(), chosen);
  }
  // Across the chunks of the parallel kernel.
  const Tensor sparse = zeros({200'000}, {kBool});
  for (const int64_t i : {0, 65535, 65536, 131071, 199'999}) sparse.index_put_({i}, true);
  EXPECT_EQ(sparse.nonzero().to_vector<int64_t>(), (std::vector<int64_t>{0, 65535, 65536, 131071, 199'999}));
  EXPECT_EQ(where(tensor({{0, 3}, {2, 0}}))[1].to_vector<int64_t>(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(tensor({2, 0, 255}, {kU8}).view(kBool).nonzero().to_vector<int64_t>(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(tensor(-0.0).nonzero().sizes(), (Dims{0, 0}));
  EXPECT_THROW(zeros({2}).masked_select(zeros({2})), DTypeError);
  EXPECT_THROW(zeros({2}).masked_select(zeros({3}, {kBool})), ShapeError);
}

/// What nonzero_static should give for `size` rows, and the count.
std::pair<std::vector<int64_t>, int64_t> listed(const Tensor& x, int64_t size, int64_t fill) {
  std::vector<int64_t> rows;
  int64_t count = 0;
  test::for_each_coordinate(x.sizes(), [&](const Coordinates& at) {
    if (element(x, at) != 0 && count++ < size) rows.insert(rows.end(), at.begin(), at.end());
  });
  rows.resize(static_cast<size_t>(size * x.dim()), fill);
  return {rows, count};
}

void expect_listed(const Tensor& x, int64_t size, int64_t fill) {
  const auto [want, count] = listed(x, size, fill);
  const auto [rows, found] = nonzero_static_with_count(x, size, fill);
  EXPECT_EQ(rows.sizes(), (Dims{size, x.dim()}));
  EXPECT_EQ(rows.dtype(), kI64);
  EXPECT_EQ(rows.to_vector<int64_t>(), want);
  EXPECT_EQ(found.sizes(), Dims{});
  EXPECT_EQ(found.dtype(), kI64);
  EXPECT_EQ(found.device(), x.device());
  EXPECT_EQ(found.item<int64_t>(), count);
  EXPECT_EQ(x.nonzero_static(size, fill).to_vector<int64_t>(), want);
  EXPECT_EQ(nonzero_static_out(empty({0}, {kI64}), x, size, fill).to_vector<int64_t>(), want);
}

TEST(Indexing, nonzero_static_lists_as_many_rows_as_it_is_told_to) {
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const DType dtype = kDTypes[shapes.number(0, kDTypeCount - 1)];
    const Tensor x = shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(0, 8))), dtype);
    test::fill_with(x, [&](const Coordinates&) { return shapes.coin() ? 0.0 : 1.0; });
    const int64_t n = x.numel();
    for (const int64_t size : {int64_t{0}, int64_t{1}, n / 2, n, n + 3}) expect_listed(x, size, shapes.number(-5, 5));
  }
}

TEST(Indexing, nonzero_static_lists_rows_across_the_blocks_of_parallel_kernels) {
  const int before = cpu::threads();
  manual_seed(7);
  for (const int threads : {1, 3}) {
    cpu::set_threads(threads);
    for (const double share : {0.0, 0.001, 0.5, 1.0}) {
      const Tensor x = rand({3, 70'001}).lt(share);
      const auto want = x.to(kCPU).nonzero().to_vector<int64_t>();
      const auto n = static_cast<int64_t>(want.size() / 2);
      for (const int64_t size : {int64_t{0}, n / 3, n - 1, n, n + 1, 2 * n + 100'000}) {
        if (size < 0) continue;
        const auto [rows, count] = nonzero_static_with_count(x, size, 9);
        std::vector<int64_t> expected = want;
        expected.resize(static_cast<size_t>(2 * size), 9);
        EXPECT_TRUE(rows.to_vector<int64_t>() == expected) << share << ", " << size << " rows";
        EXPECT_EQ(count.item<int64_t>(), n);
      }
    }
  }
  cpu::set_threads(before);
}

TEST(Indexing, nonzero_static_counts_nan_and_no_zero_of_either_sign) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64})
    expect_listed(tensor({0.0, -0.0, double(NAN), -INFINITY, 1.0, -0.0, -2.0}).to(dtype), 5, -1);
  expect_listed(tensor({2, 0, 255}, {kU8}).view(kBool), 3, -1);
  expect_listed(tensor(-0.0), 4, -1);
  expect_listed(tensor(NAN), 4, -1);
  expect_listed(zeros({0, 3}), 2, 5);
  expect_listed(zeros({3, 0, 2}), 0, 5);
  expect_listed(ones({2, 1, 2, 1, 2, 1, 2, 1}), 11, INT64_MIN);
  expect_listed(ones({1}).expand({5}), 3, -1);
}

TEST(Indexing, nonzero_static_refuses_a_negative_size) {
  const std::string text = test::message<ValueError>([] { ones({2, 3}).nonzero_static(-1); });
  EXPECT_NE(text.find("nonzero_static: size is negative; got -1 for [2, 3] f32"), std::string::npos) << text;
  EXPECT_NE(text.find("0 or more; 6 are always enough"), std::string::npos) << text;
  EXPECT_THROW(nonzero_static_with_count(ones({2}), -2), ValueError);
  EXPECT_THROW(nonzero_static(ones({2, 2, 2}), INT64_MAX / 2), Error);
  EXPECT_THROW(nonzero_static_out(empty({0}, {kBool}), ones({2}), 2), DTypeError);
}

TEST(Indexing, assignment_to_an_indexed_tensor_writes_through_it) {
  const Tensor x = zeros({3, 4}, {kF64});
  x[0] = tensor({1, 2, 3, 4});
  x.select(1, 3) = 9;
  x.index({Slice(1, 3), 0}) = ones({2}, {kF64});
  x[2][1] = x[0][2] = 7.5;
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1, 2, 7.5, 9, 1, 0, 0, 9, 1, 7.5, 0, 9}));
  EXPECT_THROW(x[0] = ones({5}), ShapeError);
}

TEST(Indexing, assignment_to_a_variable_makes_it_refer_to_another_tensor) {
  Tensor x = zeros({2});
  const Tensor first = x, second = ones({2});
  x = second;
  EXPECT_TRUE(x.is_same(second));
  x = zeros({3});
  EXPECT_EQ(x.sizes(), Dims{3});
  EXPECT_EQ(first.to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(second.to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Indexing, assignment_to_a_copy_that_nothing_refers_to_is_refused) {
  const Tensor x = zeros({3}), rows = tensor({0, 2});
  EXPECT_THROW(x.index({rows}) = 1, ValueError);
  EXPECT_THROW(x.index({x.eq(0)}) = ones({3}), ValueError);
  EXPECT_THROW(x.clone() = ones({3}), ValueError);
  EXPECT_THROW(Tensor() = 1, ValueError);
  EXPECT_THROW(x.index({rows}) += 1, ValueError);
  EXPECT_THROW(x.index({x.eq(0)}) *= x.sum(), ValueError);
  EXPECT_THROW(x.to(kI64) <<= 1, ValueError);
  EXPECT_THROW(Tensor() -= 1, ValueError);
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{0, 0, 0}));
  x.contiguous() = 2;  // x itself, under another name
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{2, 2, 2}));
  x[1] += 3;
  x.index({Slice(1)}) *= 2;
  Tensor(x) -= 1;
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{1, 9, 3}));
}

TEST(Indexing, out_forms_of_writes_at_positions_agree_with_the_functions) {
  const Tensor x = randn({3, 4}), index = tensor({{0, 1, 2, 0}, {2, 2, 1, 1}}), rows = tensor({2, 0}),
               source = randn({2, 4}), out = empty({3, 4});
  EXPECT_TRUE(equal(scatter_out(out, x, 0, index, source), scatter(x, 0, index, source)));
  EXPECT_TRUE(equal(scatter_out(out, x, 0, index, 5), scatter(x, 0, index, 5)));
  EXPECT_TRUE(equal(scatter_add_out(out, x, 0, index, source), scatter_add(x, 0, index, source)));
  EXPECT_TRUE(equal(index_add_out(out, x, 0, rows, source, 2), index_add(x, 0, rows, source, 2)));
  EXPECT_TRUE(equal(index_copy_out(out, x, 0, rows, source), index_copy(x, 0, rows, source)));
  EXPECT_THROW(scatter_out(empty({2, 4}), x, 0, index, source), ShapeError);
}

}  // namespace
}  // namespace lorry
