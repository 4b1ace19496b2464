// Copies against element-by-element loops: all pairs of types, all kinds of layouts.

#include "lorry/ops/copy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/ops/dispatch/door.h"
#include "tests/ops/operands.h"
#include "tests/support/dtypes.h"
#include "tests/support/host.h"

namespace lorry::test {
namespace {

TEST(Copy, converts_between_all_types) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      const Tensor x = random_tensor({131}, from, 7), y = x.to(to);
      ASSERT_EQ(y.dtype(), to);
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double v = element(x, i);
        const double want = visit(to, [&]<class T>(Type<T>) -> double {
          if constexpr (std::is_same_v<T, bool>) return v != 0;
          return kFloatingType<T> ? v : std::is_unsigned_v<T> ? static_cast<T>(static_cast<int64_t>(v)) : std::trunc(v);
        });
        ASSERT_EQ(element(y, i), want) << name(from) << " to " << name(to) << " of " << v;
      }
    }
  }
}

TEST(Copy, from_float_to_integer_cuts_stops_and_wraps) {
  const double values[] = {1.9, -1.9, NAN, INFINITY, -INFINITY, 1e30, -1e30, 300.0, -1.0, 2147483648.0};
  for (const DType from : {kF32, kF64}) {
    const Tensor x = empty({10}, {from});
    for (int i = 0; i < 10; ++i) set_element(x, i, values[i]);
    EXPECT_EQ(x.to(kI64).to_vector<int64_t>(),
              (std::vector<int64_t>{1, -1, 0, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN, 300, -1, 2147483648}));
    EXPECT_EQ(x.to(kU8).to_vector<int64_t>(), (std::vector<int64_t>{1, 255, 0, 255, 0, 255, 0, 44, 255, 0}));
    EXPECT_EQ(x.to(kI8).to_vector<int64_t>(), (std::vector<int64_t>{1, -1, 0, -1, 0, -1, 0, 44, -1, 0}));
    EXPECT_EQ(x.to(kI16).to_vector<int64_t>(), (std::vector<int64_t>{1, -1, 0, -1, 0, -1, 0, 300, -1, 0}));
    EXPECT_EQ(x.to(kI32).to_vector<int64_t>(), (std::vector<int64_t>{1, -1, 0, -1, 0, -1, 0, 300, -1, INT32_MIN}));
    EXPECT_EQ(x.to(kBool).to_vector<bool>(),
              (std::vector<bool>{true, true, true, true, true, true, true, true, true, true}));
  }
}

/// Numbers within i32 are converted many at a time: one at its bounds, or beyond, changes none of its neighbours.
TEST(Copy, from_float_to_integer_is_right_beside_a_number_at_the_bounds_of_i32) {
  for (const DType from : {kF32, kF64})
    for (const DType to : {kI8, kI32, kI64})
      for (const double v :
           {0.0, 2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 3e9, 0x1p62, -0x1p31 - 4096})
        for (const int64_t at : {0, 63, 64, 100}) {
          std::vector<double> values(130);
          for (size_t i = 0; i < values.size(); ++i) values[i] = 1000.75 - 17.5 * static_cast<double>(i);
          values[static_cast<size_t>(at)] = v;
          const std::vector<int64_t> got = from_data(values).to(from).to(to).to_vector<int64_t>();
          for (size_t i = 0; i < values.size(); ++i) {
            const auto whole = static_cast<int64_t>(values[i]);
            ASSERT_EQ(got[i], to == kI8    ? static_cast<int8_t>(whole)
                              : to == kI32 ? static_cast<int32_t>(whole)
                                           : whole)
                << name(from) << " to " << name(to) << ": " << values[i] << " at " << i << " beside " << v;
          }
        }
}

TEST(Copy, from_float_to_integer_is_the_same_for_every_length_and_start) {
  const double values[] = {1.9, -70'000.5, NAN, INFINITY, 3e9, -1.0, 2147483647.0, -1e30};
  for (const DType from : {kF16, kBF16, kF32, kF64})
    for (const DType to : {kU8, kI8, kI16, kI32, kI64})
      for (const int64_t length : {1, 2, 3, 4, 5, 7, 8, 1'027, 4'099})
        for (const int64_t start : {0, 1}) {
          const Tensor x = empty({length + start}, {from}).slice(0, start);
          for (int64_t i = 0; i < length; ++i) set_element(x, i, values[i % 8]);
          const Tensor y = x.to(to);
          for (int64_t i = 0; i < length; ++i) {
            const double v = element(x, i);
            const int64_t whole = std::isnan(v)  ? 0
                                  : v >= 0x1p63  ? INT64_MAX
                                  : v <= -0x1p63 ? INT64_MIN
                                                 : static_cast<int64_t>(v);
            const double want = visit(to, [&]<class T>(Type<T>) {
              return static_cast<double>(static_cast<Accumulate<T>>(static_cast<T>(whole)));
            });
            ASSERT_EQ(element(y, i), want) << name(from) << " to " << name(to) << " of " << v;
          }
        }
}

TEST(Copy, to_16_bit_floats_rounds_to_nearest_even_for_every_length) {
  // Every f16 and bf16, its upper neighbour's midpoint, and a value just beside it.
  for (const DType t : {kF16, kBF16}) {
    const Tensor all = every_16_bit_float(t);
    const Tensor wide = all.to(kF32), back = wide.to(t);
    for (int64_t i = 0; i < 65536; ++i) {
      const double v = element(all, i);
      ASSERT_TRUE(element(wide, i) == v || std::isnan(v));
      ASSERT_TRUE(std::isnan(v) ? std::isnan(element(back, i)) : static_cast<const uint16_t*>(host_data(back))[i] == i)
          << i;
    }
    const int64_t n = (t == kF16 ? 0x7c00 : 0x7f80) - 1;
    const Tensor x = empty({n, 3});
    for (int64_t i = 0; i < n; ++i) {
      const double low = element(all, i), high = element(all, i + 1), middle = (low + high) / 2;
      set_element(x, 3 * i, middle);
      set_element(x, 3 * i + 1, std::nextafterf(static_cast<float>(middle), 0));
      set_element(x, 3 * i + 2, std::nextafterf(static_cast<float>(middle), INFINITY));
    }
    const Tensor y = x.to(t);
    const auto* bits = static_cast<const uint16_t*>(host_data(y));
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(bits[3 * i], i % 2 == 0 ? i : i + 1) << name(t);
      ASSERT_EQ(bits[3 * i + 1], i);
      ASSERT_EQ(bits[3 * i + 2], i + 1);
    }
    // One NaN among ordinary numbers, for every length.
    const Tensor some = x.reshape({-1}).narrow(0, 3000, 80).clone();
    for (int64_t at = 0; at < 48; ++at)
      for (int64_t length = 1; length <= 32; ++length) {
        const Tensor part = some.narrow(0, at, length).clone();
        set_element(part, length / 2, NAN);
        const Tensor z = part.to(t);
        for (int64_t i = 0; i < length; ++i)
          ASSERT_TRUE(i == length / 2 ? std::isnan(element(z, i)) : element(z, i) == element(y, 3000 + at + i))
              << name(t) << ", " << length << " from " << at << ": " << i;
      }
  }
}

TEST(Copy, moves_between_any_layouts) {
  const Dims sizes = {5, 37, 41};
  const std::vector<Dims> strides = {{1517, 41, 1}, {1, 5, 185}, {1517, 1, 37}, {3200, 82, 2}, {41, 205, 1}};
  for (const DType from : {kU8, kI16, kF32, kF64}) {
    for (const DType to : {from, kF32}) {
      for (const Dims& a : strides) {
        for (const Dims& b : strides) {
          const Tensor x = random_strided(sizes, a, from, 3), y = empty_strided(sizes, b, {to});
          y.copy_(x);
          for (int64_t i = 0; i < x.numel(); ++i)
            ASSERT_EQ(element(y, i), element(x, i)) << to_string(a) << " to " << to_string(b);
        }
      }
    }
  }
}

/// Of a tensor that ends with the last element taken: nothing behind it may be read.
TEST(Copy, moves_every_second_element_of_every_dtype_and_length) {
  for (const int64_t n : {1, 2, 3, 8, 9, 31, 32, 33, 34, 64, 65, 1000}) {
    for (const DType dtype : kDTypes) {
      const Tensor x = random_tensor({2 * n - 1}, dtype, 11), y = x.slice(0, 0, 2 * n - 1, 2).clone();
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(element(y, i), element(x, 2 * i)) << name(dtype) << " " << n;
    }
    const Tensor bytes = arange(2 * n - 1, {kI64}).remainder(5).to(kU8);
    const Tensor truth = bytes.view(kBool).slice(0, 0, 2 * n - 1, 2).clone();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(truth.select(0, i).item<bool>(), 2 * i % 5 != 0) << n;
  }
}

TEST(Copy, transposes_large_matrices) {
  const Tensor x = random_strided({301, 517}, {1, 301}, kF32, 3), y = contiguous(x);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(same_values(y, x));
}

/// Tensors that no cache of the first levels holds are prefetched row by row.
TEST(Copy, moves_large_tensors_between_layouts) {
  const auto expect = [](const Tensor& y, const Tensor& from, auto place) {
    visit(y.dtype(), [&]<class T>(Type<T>) {
      const T *const got = host<T>(y), *const source = host<T>(from);
      int64_t wrong = 0;
      for (int64_t i = 0; i < y.numel(); ++i) wrong += got[i] != source[place(i)];
      EXPECT_EQ(wrong, 0) << y;
    });
  };
  const auto numbered = [](const Dims& sizes, DType t) {
    return arange(checked_numel(sizes)).remainder(251).to(t).reshape(sizes);
  };
  for (const DType t : {kU8, kI16, kF32, kF64}) {
    for (const int64_t width : {40, 1000, 1025, 9001}) {
      const int64_t rows = (int64_t{1} << 21) / width / 2 * 2 + 1;
      const Tensor x = numbered({rows, width}, t);
      expect(x.flip({1}), x, [=](int64_t i) { return i / width * width + width - 1 - i % width; });
      expect(x.flip({0}), x, [=](int64_t i) { return (rows - 1 - i / width) * width + i % width; });
    }
    const Tensor line = numbered({(int64_t{1} << 20) + 77}, t);
    expect(line.flip({0}), line, [&](int64_t i) { return line.numel() - 1 - i; });
    const Tensor heads = numbered({3, 1301, 5, 61}, t);
    expect(heads.transpose(1, 2).contiguous(), heads, [](int64_t i) {
      const int64_t k = i % 61, row = i / 61 % 1301, head = i / (61 * 1301) % 5, b = i / (61 * 1301 * 5);
      return ((b * 1301 + row) * 5 + head) * 61 + k;
    });
  }
}

TEST(Copy, broadcasts_the_source_and_refuses_what_does_not_fit) {
  const Tensor x = empty({3, 4}), row = random_tensor({4}, kI32, 1);
  x.copy_(row);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(element(x, i), element(row, i % 4));
  EXPECT_THROW(x.copy_(random_tensor({3}, kF32, 1)), ShapeError);
  EXPECT_THROW(x.copy_(random_tensor({2, 3, 4}, kF32, 1)), ShapeError);
  EXPECT_THROW(x.copy_(Tensor()), ValueError);
  EXPECT_NO_THROW(x.copy_(x));
}

TEST(Copy, clone_keeps_dense_strides_and_owns_its_memory) {
  const Tensor x = random_strided({4, 6}, {1, 4}, kF32, 1), y = x.clone();
  EXPECT_EQ(y.strides(), x.strides());
  EXPECT_NE(y.data_ptr(), x.data_ptr());
  EXPECT_TRUE(same_values(y, x));
  EXPECT_EQ(random_strided({4, 6}, {12, 2}, kF32, 1).clone().strides(), (Dims{6, 1}));
  EXPECT_TRUE(x.to(kF32).is_same(x));
  EXPECT_FALSE(contiguous(x).is_same(x));
  EXPECT_TRUE(contiguous(contiguous(x)).is_contiguous());
}

TEST(Copy, fill_sets_every_element_of_any_layout) {
  for (const DType t : kDTypes) {
    const Tensor x = random_strided({3, 5}, {2, 11}, t, 1);
    x.fill_(1);
    for (const double v : elements(x)) EXPECT_EQ(v, 1);
    x.zero_();
    for (const double v : elements(x)) EXPECT_EQ(v, 0);
  }
  const Tensor x = random_tensor({4}, kF32, 1), middle = view_of(x, {}, {}, 2);
  const double value = element(x, 2);
  x.fill_(middle);
  for (const double v : elements(x)) EXPECT_EQ(v, value);
  EXPECT_THROW(x.fill_(random_tensor({4}, kF32, 1)), ShapeError);
}

TEST(Copy, item_reads_a_single_element) {
  EXPECT_EQ(empty({1, 1}, {kBF16}).fill_(2.5).item<double>(), 2.5);
  EXPECT_EQ(empty({}, {kI64}).fill_(INT64_MAX).item<int64_t>(), INT64_MAX);
  EXPECT_TRUE(empty({}, {kBool}).fill_(1).item().is_boolean());
  EXPECT_THROW(empty({2}).item(), ShapeError);
  EXPECT_THROW(empty({0}).item(), ShapeError);
}

TEST(Copy, empty_tensors_are_copied_to_nothing) {
  EXPECT_EQ(empty({0, 3}).to(kI32).sizes(), (Dims{0, 3}));
  EXPECT_NO_THROW(empty({2, 0}).copy_(empty({2, 0}, {kI64})));
  EXPECT_TRUE(empty({0}).to_vector<float>().empty());
}

}  // namespace
}  // namespace lorry::test
