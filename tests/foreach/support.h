#pragma once

// Lists for tests: tensors of all kinds from a seed, and comparison to the bit.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "lorry/autograd/grad_mode.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/ops.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry::foreach::test {

using lorry::test::message;

inline constexpr auto kAll = [] {
  std::array<Strategy, kStrategies> all;
  for (int k = 0; k < kStrategies; ++k) all[static_cast<size_t>(k)] = static_cast<Strategy>(k);
  return all;
}();

/// Values that every row computes: for floating types fractions of both signs, for whole ones 1 to 4.
inline Tensor random_tensor(const Dims& sizes, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values(static_cast<size_t>(checked_numel(sizes)));
  for (double& x : values)
    x = dtype == kBool       ? static_cast<double>(random() & 1)
        : is_floating(dtype) ? static_cast<double>(random() % 3'300) / 800 - 2.0625
                             : 1 + static_cast<double>(random() % 4);
  const ModeScope quiet(0, kGradMode);
  return from_data(values, sizes).to(dtype);
}

/// Equal to the bit, strides too, except that all NaNs are one.
inline testing::AssertionResult same_bits(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype() || got.sizes() != want.sizes() || got.device() != want.device())
    return testing::AssertionFailure() << describe(got) << " is not like " << describe(want);
  if (got.numel() == 0) return testing::AssertionSuccess();
  const ModeScope quiet(0, kGradMode);
  const Tensor a = got.contiguous(), b = want.contiguous();
  const std::string x = lorry::test::bytes_of(a), y = lorry::test::bytes_of(b);
  if (x == y) return testing::AssertionSuccess();
  const std::vector<double> p = a.to_vector<double>(), q = b.to_vector<double>();
  for (size_t i = 0; i < p.size(); ++i)
    if (!(p[i] != p[i] && q[i] != q[i]) && std::memcmp(&p[i], &q[i], sizeof(double)) != 0)
      return testing::AssertionFailure() << "element " << i << " of " << describe(got) << " is " << p[i] << ", not "
                                         << q[i];
  return testing::AssertionSuccess();
}

inline testing::AssertionResult same_bits(const TensorList& got, const std::vector<Tensor>& want) {
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " tensors, not " << want.size();
  for (size_t e = 0; e < want.size(); ++e)
    if (auto result = same_bits(got[e], want[e]); !result) return result << ", entry " << e;
  return testing::AssertionSuccess();
}

/// apply, or in place apply_ to the first argument, of arguments whose number is known at run time.
inline TensorList apply_any(Pointwise op, const std::vector<Argument>& x, bool in_place) {
  switch (x.size()) {
    case 1:
      return in_place ? apply_(op, *x[0].list(), {}) : apply(op, {x[0]});
    case 2:
      return in_place ? apply_(op, *x[0].list(), {x[1]}) : apply(op, {x[0], x[1]});
    case 3:
      return in_place ? apply_(op, *x[0].list(), {x[1], x[2]}) : apply(op, {x[0], x[1], x[2]});
    default:
      return in_place ? apply_(op, *x[0].list(), {x[1], x[2], x[3]}) : apply(op, {x[0], x[1], x[2], x[3]});
  }
}

/// Copies with the strides of the originals, in memory of their own.
inline std::vector<Tensor> clones(const std::vector<Tensor>& x) {
  std::vector<Tensor> copies;
  for (const Tensor& t : x) copies.push_back(t.clone());
  return copies;
}

/// Odd lengths, none, 0-d, views that begin past a boundary, transposes, slices that are not dense, one that spreads
/// over tiles.
inline std::vector<Tensor> assorted(DType dtype, uint64_t seed) {
  std::vector<Tensor> list;
  const auto tensor = [&](const Dims& sizes) { return random_tensor(sizes, dtype, seed++); };
  for (const int64_t n : {1, 0, 7, 8, 33, 1'000}) list.push_back(tensor({n}));
  list.push_back(tensor({}));
  list.push_back(tensor({5, 6, 7}));
  list.push_back(tensor({70}).slice(0, 1));
  list.push_back(tensor({71}).slice(0, 3));
  list.push_back(tensor({9, 12}).transpose(0, 1));
  list.push_back(tensor({9, 12}).slice(1, 2, 9));
  list.push_back(tensor({3, 4'099}));
  return list;
}

}  // namespace lorry::foreach::test
