#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;
using test::expect_elements;
using test::Shapes;

template <class Body>
void on_random_tensors(int lowest_rank, int highest_rank, const Body& body) {
  for (uint32_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    body(shapes, shapes.tensor(static_cast<int>(shapes.number(lowest_rank, highest_rank))));
  }
}

TEST(Cat, joins_pieces_along_any_dimension) {
  on_random_tensors(1, 8, [](Shapes& shapes, const Tensor& x) {
    const int d = static_cast<int>(shapes.number(0, x.dim() - 1));
    std::vector<Tensor> pieces = {x};
    Dims sizes = x.sizes();
    for (int64_t more = shapes.number(0, 3); more > 0; --more) {
      Dims other = x.sizes();
      other[d] = shapes.number(0, 3);
      sizes[d] += other[d];
      pieces.push_back(shapes.tensor(other));
    }
    expect_elements(cat(pieces, shapes.coin() ? d : d - x.dim()), sizes, [&](Coordinates at) {
      size_t piece = 0;
      while (at[static_cast<size_t>(d)] >= pieces[piece].size(d)) at[static_cast<size_t>(d)] -= pieces[piece++].size(d);
      return element(pieces[piece], at);
    });
  });
}

TEST(Cat, stack_adds_a_dimension_that_counts_the_tensors) {
  on_random_tensors(0, 7, [](Shapes& shapes, const Tensor& x) {
    const std::vector<Tensor> rows = {x, shapes.tensor(x.sizes()), shapes.tensor(x.sizes())};
    const int64_t d = shapes.number(0, x.dim());
    Dims sizes = x.sizes();
    sizes.insert(static_cast<int>(d), 3);
    expect_elements(stack(rows, d), sizes, [&](Coordinates at) {
      const auto row = static_cast<size_t>(at[static_cast<size_t>(d)]);
      at.erase(at.begin() + d);
      return element(rows[row], at);
    });
  });
}

TEST(Cat, many_pieces_of_any_width_and_alignment_give_the_matrix_that_they_were_cut_from) {
  for (uint32_t seed = 0; seed < 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const DType dtypes[] = {kU8, kBF16, kF32, kF64};
    const DType dtype = dtypes[shapes.number(0, 3)];
    // Pieces of these widths times a random factor; more of them than one launch takes.
    const int64_t unit = shapes.coin() ? 1 : 16, rows = shapes.coin(0.3) ? 1 : shapes.number(2, 40);
    std::vector<int64_t> widths(static_cast<size_t>(shapes.number(2, 300)));
    int64_t width = 0;
    for (int64_t& each : widths) width += each = unit * shapes.number(1, 5);
    const Tensor whole = arange(rows * width).remainder(251).to(dtype).reshape({rows, width});
    std::vector<Tensor> pieces;
    int64_t at = 0;
    for (const int64_t each : widths) {
      const Tensor piece = whole.narrow(1, at, each);
      pieces.push_back(shapes.coin() ? piece : piece.contiguous());
      at += each;
    }
    EXPECT_TRUE(equal(cat(pieces, 1), whole));
  }
}

TEST(Cat, long_pieces_of_any_alignment_give_the_vector_that_they_were_cut_from) {
  for (const DType dtype : {kU8, kBF16, kF32}) {
    const Tensor whole = arange(5'000'003).remainder(251).to(dtype);
    for (const int64_t cut : {1, 4, 1'048'576, 2'500'001, 4'999'936}) {
      const std::vector<Tensor> pieces = {whole.narrow(0, 0, cut), whole.narrow(0, cut, 64),
                                          whole.narrow(0, cut + 64, whole.size(0) - cut - 64)};
      EXPECT_TRUE(equal(cat(pieces), whole)) << "cut at " << cut;
    }
  }
}

TEST(Cat, promotes_types_and_ignores_empty_vectors) {
  EXPECT_EQ(cat({tensor({1, 2}), tensor({0.5})}).dtype(), kF32);
  EXPECT_EQ(cat({zeros({1}, {kF16}), zeros({1}, {kBF16})}).dtype(), kF32);
  EXPECT_EQ(cat({empty({0}), ones({2, 3})}, 1).sizes(), (Dims{2, 3}));
  EXPECT_EQ(cat({empty({0}), empty({0})}).sizes(), Dims{0});
  EXPECT_EQ(hstack(std::vector<Tensor>{tensor(1), tensor({2, 3})}).to_vector<int64_t>(),
            (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(hstack(std::vector<Tensor>{ones({2, 1}), ones({2, 2})}).sizes(), (Dims{2, 3}));
  EXPECT_EQ(vstack(std::vector<Tensor>{tensor({1, 2}), tensor({{3, 4}})}).sizes(), (Dims{2, 2}));
}

TEST(Cat, wrong_arguments_are_refused) {
  EXPECT_THROW(cat({}), ValueError);
  EXPECT_THROW(cat({tensor(1)}), ShapeError);
  EXPECT_THROW(cat({ones({2, 3}), ones({2, 2})}, 0), ShapeError);
  EXPECT_THROW(cat({ones({2, 3}), ones({2})}, 0), ShapeError);
  EXPECT_THROW(cat({ones({2, 3})}, 2), IndexError);
  EXPECT_THROW(cat({ones({2}), Tensor()}), ValueError);
  EXPECT_THROW(stack({ones({2}), ones({3})}), ShapeError);
  EXPECT_THROW(stack({ones({2})}, 2), IndexError);
}

TEST(Rearrange, flip_reverses_dimensions) {
  on_random_tensors(0, 8, [](Shapes& shapes, const Tensor& x) {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < x.dim(); ++d)
      if (shapes.coin()) dims.push_back(shapes.coin() ? d : d - x.dim());
    expect_elements(x.flip(dims), x.sizes(), [&](Coordinates at) {
      for (const int64_t dim : dims) {
        const auto d = static_cast<size_t>(dim < 0 ? dim + x.dim() : dim);
        at[d] = x.size(static_cast<int64_t>(d)) - 1 - at[d];
      }
      return element(x, at);
    });
  });
  EXPECT_THROW(ones({2, 2}).flip({0, 0}), ShapeError);
  EXPECT_THROW(ones({2, 2}).flip({2}), IndexError);
}

TEST(Rearrange, roll_moves_elements_around_the_end) {
  on_random_tensors(1, 8, [](Shapes& shapes, const Tensor& x) {
    const int64_t a = shapes.number(0, x.dim() - 1), b = shapes.number(0, x.dim() - 1), s = shapes.number(-9, 9),
                  t = shapes.number(-9, 9);
    expect_elements(x.roll({s, t}, {a, b}), x.sizes(), [&](Coordinates at) {
      for (const auto& [d, shift] : {std::pair(a, s), std::pair(b, t)}) {
        int64_t& i = at[static_cast<size_t>(d)];
        i = ((i - shift) % x.size(d) + x.size(d)) % x.size(d);
      }
      return element(x, at);
    });
  });
  EXPECT_EQ(tensor({{1, 2}, {3, 4}}).roll(1).to_vector<int64_t>(), (std::vector<int64_t>{4, 1, 2, 3}));
  EXPECT_THROW(ones({2}).roll({1, 2}, {0}), ShapeError);
  EXPECT_THROW(ones({2}).roll({1, 2}), ShapeError);
}

TEST(Rearrange, repeat_tile_and_repeat_interleave_follow_their_definitions) {
  on_random_tensors(0, 8, [](Shapes& shapes, const Tensor& x) {
    const auto extra = static_cast<int>(shapes.number(0, 8 - x.dim()));
    Dims repeats, sizes;
    for (int d = 0; d < extra + x.dim(); ++d) {
      repeats.push_back(shapes.coin(0.1) ? 0 : shapes.number(1, 2));
      sizes.push_back(repeats[d] * (d < extra ? 1 : x.size(d - extra)));
    }
    const Tensor y = x.repeat(repeats);
    EXPECT_NE(y.node()->storage.get(), x.node()->storage.get());
    expect_elements(y, sizes, [&](const Coordinates& at) {
      Coordinates from(at.begin() + extra, at.end());
      for (size_t d = 0; d < from.size(); ++d) from[d] %= x.size(static_cast<int64_t>(d));
      return element(x, from);
    });
    if (x.dim() == 0) return;
    const int64_t d = shapes.number(0, x.dim() - 1), times = shapes.number(0, 3);
    Dims longer = x.sizes();
    longer[static_cast<int>(d)] *= times;
    expect_elements(x.repeat_interleave(times, d), longer, [&](Coordinates at) {
      at[static_cast<size_t>(d)] /= times;
      return element(x, at);
    });
  });
  EXPECT_EQ(tensor({1, 2}).tile({2}).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 1, 2}));
  EXPECT_EQ(ones({2, 3}).tile({2}).sizes(), (Dims{2, 6}));
  EXPECT_EQ(repeat_interleave(tensor({7, 8, 9}), tensor({2, 0, 1})).to_vector<int64_t>(),
            (std::vector<int64_t>{7, 7, 9}));
  EXPECT_EQ(repeat_interleave(tensor({{1, 2}, {3, 4}}), tensor({1, 2}), 0).sizes(), (Dims{3, 2}));
  EXPECT_THROW(repeat_interleave(tensor({7, 8}), tensor({1, -1})), ValueError);
  EXPECT_THROW(repeat_interleave(tensor({7, 8}), tensor({1, 1, 1})), ShapeError);
  EXPECT_THROW(ones({2, 2}).repeat({2}), ShapeError);
  EXPECT_THROW(ones({2}).repeat({-1}), ValueError);
  EXPECT_THROW(ones({2}).repeat({INT64_MAX}), ShapeError);
}

TEST(Rearrange, meshgrid_and_diff) {
  const auto grids = meshgrid({arange(2), arange(3)});
  EXPECT_EQ(grids[0].to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(grids[1].to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(diff(tensor({1, 4, 9, 16})).to_vector<int64_t>(), (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(diff(tensor({1, 4, 9, 16}), 2).to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(diff(tensor({1}), 3).numel(), 0);
  const Tensor x = tensor({1, 4, 9}), same = diff(x, 0);
  EXPECT_TRUE(equal(same, x));
  EXPECT_NE(same.data_ptr(), x.data_ptr()) << "a result that nobody else writes";
}

TEST(Cat, stacked_rows_and_columns_are_written_into_given_tensors) {
  const std::vector<Tensor> parts = {randn({2, 3}), randn({2, 3})};
  EXPECT_TRUE(equal(hstack_out(empty({2, 6}), parts), hstack(parts)));
  EXPECT_TRUE(equal(vstack_out(empty({4, 3}), parts), vstack(parts)));
  EXPECT_THROW(vstack_out(empty({2, 6}), parts), ShapeError);
}

}  // namespace
}  // namespace lorry
