// Operators that take indices, over all combinations of a few shapes of self, index and source, rank 0 and empty ones
// among them. Which combinations are accepted is PyTorch's rule, as a predicate; what is written, a plain loop says.

#include <gtest/gtest.h>

#include "tests/ops/operands.h"

namespace lorry::test {
namespace {

const Dims kShapes[] = {{}, {0}, {1}, {2}, {0, 2}, {2, 0}, {1, 1}, {2, 2}, {0, 0}, {2, 1, 2}};

int64_t count(const Dims& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}
/// A number counts as a vector of one.
Dims vector_of(const Dims& sizes) { return sizes.empty() ? Dims{1} : sizes; }

/// Whether x [along 0] has an element for every index, whose value is 0.
bool index_fits(const Dims& x_sizes, const Dims& index_sizes) {
  if (count(index_sizes) == 0) return true;
  const Dims x = vector_of(x_sizes), index = vector_of(index_sizes);
  bool fits = x.size() == index.size() && x[0] > 0;
  for (int d = 1; fits && d < x.size(); ++d) fits = index[d] <= x[d];
  return fits;
}
bool source_covers(const Dims& index_sizes, const Dims& source_sizes) {
  if (count(index_sizes) == 0) return true;
  const Dims index = vector_of(index_sizes), source = vector_of(source_sizes);
  bool covers = index.size() == source.size();
  for (int d = 0; covers && d < index.size(); ++d) covers = index[d] <= source[d];
  return covers;
}

/// f(offset in the index, offset in self) for every index, all of which are 0 along dimension 0.
template <class F>
void for_each_index(const Dims& index_sizes, const Dims& self_sizes, const F& f) {
  const Dims index = vector_of(index_sizes), self = vector_of(self_sizes);
  for (int64_t i = 0; i < count(index); ++i) {
    int64_t rest = i, offset = 0, stride = 1;
    for (int d = index.size() - 1; d >= 0; --d) {
      if (d > 0) offset += rest % index[d] * stride;
      rest /= index[d];
      stride *= self[d];
    }
    f(i, offset);
  }
}

/// Calls f and waits: what a GPU finds in an index is thrown by the wait.
template <class F>
void heard(const F& f) {
  f();
  device::synchronize(default_device());
}

std::string shapes(const Dims& self, const Dims& index, const Dims& source = {}) {
  return fmt::format("self {}, index {}, source {}", self, index, source);
}

TEST(IndexShapes, scatter_and_scatter_add_write_for_every_shape_or_refuse) {
  for (const Dims& sizes : kShapes)
    for (const Dims& index_sizes : kShapes)
      for (const Dims& source_sizes : kShapes) {
        SCOPED_TRACE(shapes(sizes, index_sizes, source_sizes));
        const Tensor self = random_tensor(sizes, kF32, 1), index = zeros(index_sizes, {kI64}),
                     source = ones(source_sizes);
        if (!index_fits(sizes, index_sizes) || !source_covers(index_sizes, source_sizes)) {
          EXPECT_THROW(heard([&] { scatter(self, 0, index, source); }), Error);
          EXPECT_THROW(heard([&] { scatter_add(self, 0, index, source); }), Error);
          continue;
        }
        std::vector<double> set = elements(self), added = set;
        for_each_index(index_sizes, sizes, [&](int64_t, int64_t at) {
          set[static_cast<size_t>(at)] = 1;
          added[static_cast<size_t>(at)] += 1;
        });
        EXPECT_EQ(elements(scatter(self, 0, index, source)), set);
        EXPECT_EQ(elements(scatter(self, 0, index, 1)), set);
        EXPECT_EQ(elements(scatter_add(self, 0, index, source)), added);
      }
}

TEST(IndexShapes, a_source_has_gradients_where_the_index_reads_it_whatever_their_shapes) {
  for (const Dims& sizes : kShapes)
    for (const Dims& index_sizes : kShapes)
      for (const Dims& source_sizes : kShapes) {
        if (!index_fits(sizes, index_sizes) || !source_covers(index_sizes, source_sizes)) continue;
        SCOPED_TRACE(shapes(sizes, index_sizes, source_sizes));
        const Tensor self = random_tensor(sizes, kF32, 1), index = zeros(index_sizes, {kI64});
        std::vector<double> want(static_cast<size_t>(count(source_sizes)));
        if (count(index_sizes) > 0) {
          const Dims read = vector_of(index_sizes), whole = vector_of(source_sizes);
          for (int64_t i = 0; i < count(whole); ++i) {
            bool covered = true;
            for (int64_t d = whole.size() - 1, rest = i; d >= 0; --d) {
              covered &= rest % whole[static_cast<int>(d)] < read[static_cast<int>(d)];
              rest /= whole[static_cast<int>(d)];
            }
            want[static_cast<size_t>(i)] = covered;
          }
        }
        const Tensor set = ones(source_sizes).requires_grad_(), added = ones(source_sizes).requires_grad_();
        scatter(self, 0, index, set).sum().backward();
        scatter_add(self, 0, index, added).sum().backward();
        EXPECT_EQ(set.grad().sizes(), source_sizes);
        EXPECT_EQ(elements(set.grad()), want);
        EXPECT_EQ(elements(added.grad()), want);
      }
}

TEST(IndexShapes, gather_and_its_gradient_take_every_shape_or_refuse) {
  for (const Dims& sizes : kShapes)
    for (const Dims& index_sizes : kShapes) {
      SCOPED_TRACE(shapes(sizes, index_sizes));
      const Tensor x = random_tensor(sizes, kF32, 1).requires_grad_(), index = zeros(index_sizes, {kI64});
      if (!index_fits(sizes, index_sizes)) {
        EXPECT_THROW(heard([&] { gather(x, 0, index); }), Error);
        continue;
      }
      const Tensor y = gather(x, 0, index);
      ASSERT_EQ(y.sizes(), index_sizes);
      std::vector<double> grad(static_cast<size_t>(x.numel()));
      for_each_index(index_sizes, sizes, [&](int64_t i, int64_t at) {
        EXPECT_EQ(element(y, i), element(x, at));
        grad[static_cast<size_t>(at)] += 1;
      });
      y.sum().backward();
      EXPECT_EQ(elements(x.grad()), grad);
      if (count(index_sizes) == 0) {
        const Tensor self = random_tensor(sizes, kF32, 2).requires_grad_();
        scatter(self, 0, index, 1).sum().backward();
        EXPECT_EQ(elements(self.grad()), std::vector<double>(static_cast<size_t>(self.numel()), 1.0))
            << "an empty index leaves self as it is";
      }
    }
}

/// index_copy with index_add's signature.
Tensor index_copy_of(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, const Scalar&) {
  return index_copy(x, dim, index, source);
}

TEST(IndexShapes, rows_are_written_and_read_for_every_shape_or_refused) {
  for (const Dims& sizes : kShapes)
    for (const Dims& index_sizes : kShapes) {
      SCOPED_TRACE(shapes(sizes, index_sizes));
      const Tensor self = random_tensor(sizes, kF32, 1), index = zeros(index_sizes, {kI64});
      const int64_t chosen = count(index_sizes);
      const bool fits = index_sizes.size() <= 1 && (chosen == 0 || vector_of(sizes)[0] > 0);
      // Where rows have no elements, a GPU's kernels have nothing to do and look at no index.
      if (index_sizes.size() <= 1 && !fits && sizes.size() > 1 && vector_of(sizes)[1] == 0 && !self.device().is_cpu())
        continue;
      if (!fits) {
        EXPECT_THROW(heard([&] { index_fill(self, 0, index, 5); }), Error);
        EXPECT_THROW(heard([&] { index_select(self, 0, index); }), Error);
      } else {
        const Tensor filled = index_fill(self, 0, index, 5);
        const int64_t row = self.numel() / std::max<int64_t>(1, vector_of(sizes)[0]);
        for (int64_t i = 0; i < self.numel(); ++i)
          EXPECT_EQ(element(filled, i), chosen > 0 && i < row ? 5 : element(self, i));
        if (sizes.empty() && chosen != 1) {
          EXPECT_THROW(heard([&] { index_select(self, 0, index); }), Error);
        } else {
          EXPECT_EQ(index_select(self, 0, index).numel(), chosen * row);
        }
      }
      for (const Dims& source_sizes : kShapes) {
        SCOPED_TRACE(shapes(sizes, index_sizes, source_sizes));
        const Tensor source = ones(source_sizes);
        Dims wanted = vector_of(sizes);
        wanted[0] = chosen;
        if (!fits || vector_of(source_sizes) != wanted) {
          EXPECT_THROW(heard([&] { index_add(self, 0, index, source); }), Error);
          EXPECT_THROW(heard([&] { index_copy(self, 0, index, source); }), Error);
          continue;
        }
        const Tensor added = index_add(self, 0, index, source), copied = index_copy(self, 0, index, source);
        const int64_t row = self.numel() / std::max<int64_t>(1, vector_of(sizes)[0]);
        for (int64_t i = 0; i < self.numel(); ++i) {
          EXPECT_EQ(element(added, i), element(self, i) + (i < row ? static_cast<double>(chosen) : 0));
          EXPECT_EQ(element(copied, i), chosen > 0 && i < row ? 1 : element(self, i));
        }
        for (const auto& write : {index_add, index_copy_of}) {
          const Tensor leaf = ones(source_sizes).requires_grad_();
          write(self, 0, index, leaf, 1).sum().backward();
          EXPECT_EQ(elements(leaf.grad()), std::vector<double>(static_cast<size_t>(leaf.numel()), 1.0));
        }
      }
    }
}

/// The call gives a tensor or an error of Lorry's: it never reads or writes elsewhere (which a sanitizer would see).
template <class F, class Check>
void gives_or_refuses(const F& f, const Check& check) {
  Tensor given;
  try {
    heard([&] { given = f(); });
  } catch (const Error&) {
    return;
  }
  check(given);
}

TEST(IndexShapes, no_combination_reaches_outside_its_operands) {
  for (const Dims& sizes : kShapes)
    for (const Dims& index_sizes : kShapes) {
      SCOPED_TRACE(shapes(sizes, index_sizes));
      const Tensor self = random_tensor(sizes, kF32, 1), index = zeros(index_sizes, {kI64});
      int64_t row = 1;
      for (int d = 1; d < sizes.size(); ++d) row *= sizes[d];
      const auto rows = [&](const Tensor& taken) { EXPECT_EQ(taken.numel(), index.numel() * row); };
      gives_or_refuses([&] { return embedding(index, self); }, rows);
      gives_or_refuses([&] { return self.index({index}); }, rows);
      gives_or_refuses([&] { return take_along_dim(self, index); },
                       [&](const Tensor& taken) { EXPECT_EQ(taken.numel(), index.numel()); });
      gives_or_refuses([&] { return take_along_dim(self, index, 0); },
                       [&](const Tensor& taken) {
                         if (sizes == index_sizes) {
                           EXPECT_TRUE(same_values(taken, gather(self, 0, index)));
                         }
                       });
      for (const Dims& source_sizes : kShapes)
        for (const bool accumulate : {false, true})
          gives_or_refuses([&] { return self.clone().index_put_({index}, ones(source_sizes), accumulate); },
                           [&](const Tensor& put) { EXPECT_EQ(put.numel(), self.numel()); });
    }
}

}  // namespace
}  // namespace lorry::test
