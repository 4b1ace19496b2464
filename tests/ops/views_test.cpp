#include "lorry/ops/views.h"

#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;
using test::expect_elements;
using test::Shapes;

constexpr uint32_t kTrials = 300;

/// Runs body(shapes, x) on random tensors of rank 0 to 8, naming the seed of a failure.
template <class Body>
void on_random_tensors(int lowest_rank, const Body& body) {
  for (uint32_t seed = 0; seed < kTrials && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const Tensor x = shapes.tensor(static_cast<int>(shapes.number(lowest_rank, 8)));
    body(shapes, x);
  }
}

Coordinates row_major(int64_t position, const Dims& sizes) {
  Coordinates at(static_cast<size_t>(sizes.size()));
  for (int d = sizes.size() - 1; d >= 0; --d) {
    at[static_cast<size_t>(d)] = position % sizes[d];
    position /= sizes[d];
  }
  return at;
}

int64_t position_of(const Coordinates& at, const Dims& sizes) {
  int64_t position = 0;
  for (size_t d = 0; d < at.size(); ++d) position = position * sizes[static_cast<int>(d)] + at[d];
  return position;
}

void expect_shares_memory(const Tensor& view, const Tensor& base) {
  EXPECT_EQ(view.node()->storage.get(), base.node()->storage.get());
}

TEST(Views, select_takes_one_index_of_any_dimension) {
  on_random_tensors(1, [](Shapes& shapes, const Tensor& x) {
    const int64_t d = shapes.number(0, x.dim() - 1), size = x.size(d);
    if (size == 0) return;
    const int64_t i = shapes.number(-size, size - 1);
    Dims sizes = x.sizes();
    sizes.erase(static_cast<int>(d));
    const Tensor y = x.select(shapes.coin() ? d : d - x.dim(), i);
    expect_shares_memory(y, x);
    expect_elements(y, sizes, [&](Coordinates at) {
      at.insert(at.begin() + d, i);
      return element(x, at);
    });
  });
}

TEST(Views, slice_follows_pythons_rule_for_bounds_and_steps) {
  on_random_tensors(1, [](Shapes& shapes, const Tensor& x) {
    const int64_t d = shapes.number(0, x.dim() - 1), size = x.size(d), step = shapes.number(1, 3);
    std::optional<int64_t> start, end;
    if (shapes.coin(0.8)) start = shapes.number(-7, 7);
    if (shapes.coin(0.8)) end = shapes.number(-7, 7);
    std::vector<int64_t> picked;  // by the definition: every index, tested
    const int64_t first = !start ? 0 : *start < 0 ? std::max<int64_t>(0, *start + size) : *start;
    const int64_t last = !end ? size : *end < 0 ? *end + size : std::min(*end, size);
    for (int64_t i = first; i < last; i += step) picked.push_back(i);
    Dims sizes = x.sizes();
    sizes[static_cast<int>(d)] = static_cast<int64_t>(picked.size());
    const Tensor y = x.slice(d, start, end, step);
    expect_shares_memory(y, x);
    expect_elements(y, sizes, [&](Coordinates at) {
      at[static_cast<size_t>(d)] = picked[static_cast<size_t>(at[static_cast<size_t>(d)])];
      return element(x, at);
    });
  });
}

TEST(Views, permute_transpose_and_movedim_reorder_dimensions) {
  on_random_tensors(0, [](Shapes& shapes, const Tensor& x) {
    std::vector<int64_t> order(static_cast<size_t>(x.dim()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::shuffle(order.begin(), order.end(), shapes.engine());
    Dims sizes;
    for (const int64_t d : order) sizes.push_back(x.size(d));
    const auto source = [&](const Coordinates& at) {
      Coordinates from(at.size());
      for (size_t i = 0; i < at.size(); ++i) from[static_cast<size_t>(order[i])] = at[i];
      return element(x, from);
    };
    expect_elements(x.permute(order), sizes, source);
    if (x.dim() < 2) return;
    Dims all;
    for (int64_t d = 0; d < x.dim(); ++d) all.push_back(d);
    expect_elements(x.movedim(order, all), sizes, source);
    const int64_t a = shapes.number(0, x.dim() - 1), b = shapes.number(-x.dim(), -1);
    Dims swapped = x.sizes();
    std::swap(swapped[static_cast<int>(a)], swapped[static_cast<int>(b + x.dim())]);
    expect_elements(x.transpose(a, b), swapped, [&](Coordinates at) {
      std::swap(at[static_cast<size_t>(a)], at[static_cast<size_t>(b + x.dim())]);
      return element(x, at);
    });
  });
}

TEST(Views, reshape_keeps_the_row_major_order_whatever_the_strides) {
  on_random_tensors(0, [](Shapes& shapes, const Tensor& x) {
    // Factorise the number of elements into random sizes.
    Dims sizes;
    int64_t left = x.numel();
    while (left > 1 && sizes.size() < 5) {
      int64_t f = shapes.number(1, std::min<int64_t>(left, 9));
      while (left % f != 0) --f;
      sizes.push_back(f);
      left /= f;
    }
    sizes.push_back(left);
    const Tensor y = x.reshape(sizes);
    expect_elements(y, sizes,
                    [&](const Coordinates& at) { return element(x, row_major(position_of(at, sizes), x.sizes())); });
    if (x.numel() == 0) return;
    Dims inferred = sizes;
    inferred[static_cast<int>(shapes.number(0, sizes.size() - 1))] = -1;
    EXPECT_EQ(x.reshape(inferred).sizes(), sizes);
    if (x.is_contiguous()) expect_shares_memory(y, x);
  });
}

TEST(Views, view_succeeds_exactly_where_one_layout_shows_the_elements) {
  on_random_tensors(0, [](Shapes& shapes, const Tensor& x) {
    if (x.numel() == 0) return;
    Dims sizes = x.sizes();
    if (sizes.size() >= 2) {  // merge two neighbours
      const int d = static_cast<int>(shapes.number(0, sizes.size() - 2));
      sizes[d] *= sizes[d + 1];
      sizes.erase(d + 1);
    }
    // By brute force: the addresses in row-major order, and whether strides over `sizes` produce them.
    std::vector<int64_t> addresses;
    const auto address = [](const Layout& l, const Coordinates& at) {
      int64_t a = 0;
      for (size_t d = 0; d < at.size(); ++d) a += at[d] * l.strides[d];
      return a;
    };
    test::for_each_coordinate(x.sizes(), [&](const Coordinates& at) { addresses.push_back(address(x.layout(), at)); });
    Layout wanted = Layout::contiguous(sizes);
    for (int d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      Coordinates one(static_cast<size_t>(sizes.size()), 0);
      one[static_cast<size_t>(d)] = 1;
      wanted.strides[d] = addresses[static_cast<size_t>(position_of(one, sizes))];
    }
    bool possible = true;
    test::for_each_coordinate(sizes, [&](const Coordinates& at) {
      possible &= address(wanted, at) == addresses[static_cast<size_t>(position_of(at, sizes))];
    });
    if (possible) {
      expect_shares_memory(x.view(sizes), x);
      expect_elements(x.view(sizes), sizes,
                      [&](const Coordinates& at) { return element(x, row_major(position_of(at, sizes), x.sizes())); });
    } else {
      EXPECT_THROW(x.view(sizes), ShapeError);
    }
  });
}

TEST(Views, expand_repeats_sizes_of_one_and_new_leading_dimensions) {
  on_random_tensors(0, [](Shapes& shapes, const Tensor& x) {
    Dims sizes;
    for (int64_t i = shapes.number(0, 8 - x.dim()); i > 0; --i) sizes.push_back(shapes.number(1, 2));
    const int shift = sizes.size();
    for (const int64_t size : x.sizes()) sizes.push_back(size == 1 ? shapes.number(0, 3) : size);
    const Tensor y = x.expand(sizes);
    expect_shares_memory(y, x);
    expect_elements(y, sizes, [&](const Coordinates& at) {
      Coordinates from(at.begin() + shift, at.end());
      for (size_t d = 0; d < from.size(); ++d) from[d] = x.size(static_cast<int64_t>(d)) == 1 ? 0 : from[d];
      return element(x, from);
    });
  });
}

TEST(Views, squeeze_and_unsqueeze_remove_and_insert_sizes_of_one) {
  on_random_tensors(0, [](Shapes& shapes, const Tensor& x) {
    Dims kept;
    for (const int64_t size : x.sizes())
      if (size != 1) kept.push_back(size);
    EXPECT_EQ(x.squeeze().sizes(), kept);
    expect_shares_memory(x.squeeze(), x);
    if (x.dim() < 8) {
      const int64_t d = shapes.number(-x.dim() - 1, x.dim());
      Dims sizes = x.sizes();
      sizes.insert(static_cast<int>(d < 0 ? d + x.dim() + 1 : d), 1);
      EXPECT_EQ(x.unsqueeze(d).sizes(), sizes);
      expect_elements(x.unsqueeze(d).squeeze(d), x.sizes(), [&](const Coordinates& at) { return element(x, at); });
    }
  });
  EXPECT_EQ(zeros({2, 1, 3}).squeeze(0).sizes(), (Dims{2, 1, 3}));
  EXPECT_EQ(squeeze(zeros({1, 2, 1, 3}), {0, 2}).sizes(), (Dims{2, 3}));
  EXPECT_EQ(zeros({1, 2, 1}).squeeze(Dims{}).sizes(), (Dims{1, 2, 1}));
  EXPECT_THROW(zeros({1, 2, 1}).squeeze(Dims{0, -3}), ShapeError);
  EXPECT_TRUE(zeros({2, 3}).unsqueeze(1).is_contiguous());
}

TEST(Views, diagonal_pairs_the_indices_of_two_dimensions) {
  on_random_tensors(2, [](Shapes& shapes, const Tensor& x) {
    const int64_t a = shapes.number(0, x.dim() - 1);
    int64_t b = shapes.number(0, x.dim() - 2);
    if (b >= a) ++b;
    const int64_t offset = shapes.number(-4, 4);
    int64_t length = 0;
    while (length + std::max<int64_t>(0, -offset) < x.size(a) && length + std::max<int64_t>(0, offset) < x.size(b))
      ++length;
    Dims sizes;
    for (int64_t d = 0; d < x.dim(); ++d)
      if (d != a && d != b) sizes.push_back(x.size(d));
    sizes.push_back(length);
    expect_elements(x.diagonal(offset, a, b), sizes, [&](const Coordinates& at) {
      Coordinates from;
      size_t next = 0;
      for (int64_t d = 0; d < x.dim(); ++d)
        from.push_back(d == a   ? at.back() + std::max<int64_t>(0, -offset)
                       : d == b ? at.back() + std::max<int64_t>(0, offset)
                                : at[next++]);
      return element(x, from);
    });
  });
}

TEST(Views, unfold_shows_every_window) {
  on_random_tensors(1, [](Shapes& shapes, const Tensor& x) {
    if (x.dim() == 8) return;
    const int64_t d = shapes.number(0, x.dim() - 1), size = shapes.number(0, x.size(d)), step = shapes.number(1, 3);
    Dims sizes = x.sizes();
    int64_t windows = 0;
    while (windows * step + size <= x.size(d)) ++windows;
    sizes[static_cast<int>(d)] = windows;
    sizes.push_back(size);
    expect_elements(x.unfold(d, size, step), sizes, [&](Coordinates at) {
      at[static_cast<size_t>(d)] = at[static_cast<size_t>(d)] * step + at.back();
      at.pop_back();
      return element(x, at);
    });
  });
}

TEST(Views, flatten_and_unflatten_are_inverse) {
  on_random_tensors(1, [](Shapes& shapes, const Tensor& x) {
    const int64_t first = shapes.number(0, x.dim() - 1), last = shapes.number(first, x.dim() - 1);
    Dims inner;
    for (int64_t d = first; d <= last; ++d) inner.push_back(x.size(d));
    const Tensor flat = x.flatten(first, last);
    EXPECT_EQ(flat.dim(), x.dim() - (last - first));
    expect_elements(flat.unflatten(first, inner), x.sizes(), [&](const Coordinates& at) { return element(x, at); });
  });
  EXPECT_EQ(tensor(3).flatten().sizes(), Dims{1});
  EXPECT_EQ(zeros({6, 4}).unflatten(0, {-1, 3}).sizes(), (Dims{2, 3, 4}));
}

TEST(Views, split_chunk_and_unbind_cover_the_dimension_in_order) {
  on_random_tensors(1, [](Shapes& shapes, const Tensor& x) {
    const int64_t d = shapes.number(0, x.dim() - 1), size = x.size(d);
    const auto expect_cover = [&](const std::vector<Tensor>& pieces) {
      int64_t at = 0;
      for (const Tensor& piece : pieces) {
        Dims sizes = x.sizes();
        sizes[static_cast<int>(d)] = piece.size(d);
        expect_elements(piece, sizes, [&](Coordinates c) {
          c[static_cast<size_t>(d)] += at;
          return element(x, c);
        });
        at += piece.size(d);
      }
      EXPECT_EQ(at, size);
    };
    expect_cover(x.split(shapes.number(1, 3), d));
    expect_cover(x.chunk(shapes.number(1, 5), d));
    const int64_t cut = shapes.number(0, size);
    expect_cover(x.split(std::vector<int64_t>{cut, size - cut}, d));
    EXPECT_EQ(static_cast<int64_t>(x.unbind(d).size()), size);
  });
  EXPECT_EQ(zeros({0, 2}).chunk(3).size(), 3u);
  EXPECT_EQ(zeros({5}).chunk(4).size(), 3u);  // 2 + 2 + 1, as in PyTorch
}

TEST(Views, as_strided_addresses_the_storage_and_never_leaves_it) {
  const Tensor x = arange(12);
  expect_elements(x.as_strided({2, 3}, {1, 4}, 1), {2, 3},
                  [](const Coordinates& at) { return static_cast<double>(1 + at[0] + 4 * at[1]); });
  EXPECT_EQ(element(x.narrow(0, 3, 4).as_strided({2}, {1}), {0}), 3);
  EXPECT_THROW(x.as_strided({2, 3}, {8, 2}), ShapeError);
  EXPECT_THROW(x.as_strided({2}, {-1}, 5), ShapeError);
  EXPECT_THROW(x.as_strided({2}, {INT64_MAX}), ShapeError);
  EXPECT_THROW(x.as_strided({1}, {1}, -1), ShapeError);
  EXPECT_EQ(x.as_strided({0}, {1}, 12).numel(), 0);
}

TEST(Views, bytes_can_be_seen_as_another_dtype) {
  const Tensor x = tensor({{1.0, -2.0}, {0.0, 4.0}});
  EXPECT_EQ(element(x.view(kI32), {0, 0}), 0x3f800000);
  EXPECT_EQ(x.view(kU8).sizes(), (Dims{2, 8}));
  EXPECT_EQ(x.view(kF64).sizes(), (Dims{2, 1}));
  EXPECT_EQ(x.view(kU8).view(kF32).sizes(), x.sizes());
  EXPECT_THROW(x.t().view(kF64), ShapeError);
  EXPECT_THROW(zeros({3}).view(kF64), ShapeError);
  EXPECT_THROW(x.slice(1, 1).view(kF64), ShapeError);
}

TEST(Views, wrong_arguments_are_refused_by_type) {
  const Tensor x = zeros({2, 3});
  EXPECT_THROW(x.select(0, 2), IndexError);
  EXPECT_THROW(x.select(0, -3), IndexError);
  EXPECT_THROW(x.select(2, 0), IndexError);
  EXPECT_THROW(tensor(1.0).select(0, 0), IndexError);
  EXPECT_THROW(x.slice(0, 0, 2, 0), ValueError);
  EXPECT_THROW(x.slice(0, 0, 2, -1), ValueError);
  EXPECT_EQ(x.slice(0, 0, 2, INT64_MAX).size(0), 1);
  EXPECT_THROW(x.narrow(1, 2, 2), IndexError);
  EXPECT_THROW(x.narrow(1, 0, -1), IndexError);
  EXPECT_THROW(x.permute({0}), ShapeError);
  EXPECT_THROW(x.permute({0, 0}), ShapeError);
  EXPECT_THROW(x.transpose(0, 2), IndexError);
  EXPECT_THROW(x.view({5}), ShapeError);
  EXPECT_THROW(x.view({-1, -1}), ShapeError);
  EXPECT_THROW(x.view({-2, 3}), ShapeError);
  EXPECT_THROW(x.t().view({6}), ShapeError);
  EXPECT_THROW(x.expand({2}), ShapeError);
  EXPECT_THROW(x.expand({4, 3}), ShapeError);
  EXPECT_THROW(x.expand({-1, 2, 3}), ShapeError);
  EXPECT_EQ(x.expand({4, -1, 3}).sizes(), (Dims{4, 2, 3}));
  EXPECT_THROW(x.unsqueeze(3), IndexError);
  EXPECT_THROW(zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0), ShapeError);
  EXPECT_THROW(x.flatten(1, 0), ShapeError);
  EXPECT_THROW(x.unflatten(1, {2, 2}), ShapeError);
  EXPECT_THROW(x.diagonal(0, 1, 1), ShapeError);
  EXPECT_THROW(x.unfold(1, 4, 1), ShapeError);
  EXPECT_THROW(x.unfold(1, 2, 0), ValueError);
  EXPECT_THROW(x.split(-1), ValueError);
  EXPECT_THROW(x.split(std::vector<int64_t>{1, 2}, 0), ShapeError);
  EXPECT_THROW(x.chunk(0), ValueError);
  EXPECT_THROW(x.movedim({0, 0}, {0, 1}), ShapeError);
  EXPECT_THROW(zeros({2, 3, 4}).t(), ShapeError);
  EXPECT_THROW(zeros({2}).mT(), ShapeError);
  EXPECT_THROW(Tensor().view({1}), ValueError);
}

TEST(Views, in_place_forms_change_the_tensor_itself) {
  const Tensor x = arange(6).reshape({1, 2, 3}).clone(), same = x;
  x.squeeze_().t_();
  EXPECT_EQ(same.sizes(), (Dims{3, 2}));
  EXPECT_FALSE(same.is_contiguous());
  EXPECT_EQ(same.to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  x.unsqueeze_(0).transpose_(0, 2);
  EXPECT_EQ(same.sizes(), (Dims{2, 3, 1}));
  EXPECT_EQ(x.squeeze_(-1).sizes(), (Dims{2, 3}));
  EXPECT_TRUE(same.is_contiguous());
}

TEST(Views, in_place_forms_are_refused_where_gradients_flow_and_noticed_by_a_graph_that_saved_the_tensor) {
  const Tensor w = randn({2, 2}).requires_grad_(), x = randn({2, 2});
  EXPECT_THROW(w.t_(), GradError);
  const Tensor y = w * x;
  x.t_();
  EXPECT_THROW(y.sum().backward(), GradError);
}

TEST(Views, methods_agree_with_the_functions) {
  const Tensor x = randn({1, 2, 1, 3}), y = randn({3, 2});
  EXPECT_EQ(x.squeeze(Dims{0, 2}).sizes(), (Dims{2, 3}));
  EXPECT_EQ(x.reshape_as(y).sizes(), (Dims{3, 2}));
  EXPECT_EQ(x.broadcast_to({4, 2, 5, 3}).sizes(), (Dims{4, 2, 5, 3}));
  EXPECT_TRUE(equal(y.sum_to_size({1, 2}), y.sum({0}, true)));
  EXPECT_TRUE(equal(y.diff(1, 0), y.slice(0, 1) - y.slice(0, 0, 2)));
}

}  // namespace
}  // namespace lorry
