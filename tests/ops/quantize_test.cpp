// Quantisation against plain loops, and against what PyTorch answered (tests/data/quantize_values.json, made by
// tests/peers/make_quantize_values.py).

#include "lorry/ops/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "lorry/formula/quantize.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

using nlohmann::json;

const json& stored() {
  static const json kStored = json::parse(std::ifstream(LORRY_TEST_DATA "/quantize_values.json"));
  return kStored;
}

std::vector<float> floats(const json& bits) {
  std::vector<float> out;
  for (const json& v : bits) out.push_back(std::bit_cast<float>(v.get<uint32_t>()));
  return out;
}

Tensor f32(const std::vector<float>& data, const Dims& sizes) { return from_data(data, sizes); }
Tensor f32(const std::vector<float>& data) { return f32(data, {static_cast<int64_t>(data.size())}); }

/// The codes as bytes, in row-major order.
std::vector<int> bytes(const Tensor& codes) {
  std::vector<int> out;
  for (const double v : elements(codes)) out.push_back(static_cast<int>(v) & 0xff);
  return out;
}

const QuantScheme kSchemes[] = {QuantScheme::int8(),
                                QuantScheme::int8(true),
                                QuantScheme::int8_per_channel(0),
                                QuantScheme::int8_per_channel(-1, true),
                                QuantScheme::blocks(),
                                QuantScheme::float8_e4m3(),
                                QuantScheme::float8_e4m3(true),
                                QuantScheme::float8_e5m2(),
                                QuantScheme::float8_e5m2(true)};

// ---- ranges ---------------------------------------------------------------------------------------------------------

TEST(Aminmax, is_what_a_loop_finds_for_every_dtype_layout_and_dimension) {
  for (const Dims& sizes : {Dims{3, 40, 5}, Dims{2, 70'000}, Dims{70'000, 2}, Dims{300, 9}})
    for (const DType dtype : kDTypes)
      for (const Memory memory : kMemories) {
        if (checked_numel(sizes) > 100'000 && dtype != kF32 && dtype != kBF16 && dtype != kI64) continue;
        const Tensor x = sample(sizes, dtype, 2, memory, 100);
        const std::vector<double> values = elements(x);
        const auto [low, high] = x.aminmax();
        EXPECT_EQ(low.dtype(), dtype);
        ASSERT_EQ(element(low, 0), *std::min_element(values.begin(), values.end())) << describe(x);
        ASSERT_EQ(element(high, 0), *std::max_element(values.begin(), values.end())) << describe(x);
        for (int64_t dim = 0; dim < sizes.size(); ++dim) {
          const auto [lows, highs] = aminmax(x, dim, true);
          Dims kept = sizes;
          kept[static_cast<int>(dim)] = 1;
          ASSERT_EQ(lows.sizes(), kept);
          int64_t inner = 1;
          for (int64_t d = dim + 1; d < sizes.size(); ++d) inner *= sizes[static_cast<int>(d)];
          const int64_t n = sizes[static_cast<int>(dim)];
          const std::vector<double> got_low = elements(lows), got_high = elements(highs);
          for (size_t i = 0; i < got_low.size(); ++i) {
            const auto at = static_cast<int64_t>(i);
            double least = kInf, most = -kInf;
            for (int64_t k = 0; k < n; ++k) {
              const double v = values[static_cast<size_t>(at / inner * inner * n + k * inner + at % inner)];
              least = std::min(least, v), most = std::max(most, v);
            }
            ASSERT_EQ(got_low[i], least) << describe(x) << " along " << dim;
            ASSERT_EQ(got_high[i], most) << describe(x) << " along " << dim;
          }
        }
      }
}

TEST(Aminmax, has_pytorchs_edges) {
  const Tensor x = f32({1, std::numeric_limits<float>::quiet_NaN(), 3, -5, 2, 4}, {2, 3});
  const auto [low, high] = x.aminmax(1);
  EXPECT_TRUE(std::isnan(element(low, 0)));
  EXPECT_TRUE(std::isnan(element(high, 0)));
  EXPECT_EQ(element(low, 1), -5);
  EXPECT_EQ(element(high, 1), 4);
  const auto [least, most] = f32({static_cast<float>(kInf), -static_cast<float>(kInf)}).aminmax();
  EXPECT_EQ(element(least, 0), -kInf);
  EXPECT_EQ(element(most, 0), kInf);
  const auto [small, large] = from_data(std::vector<int64_t>{INT64_MAX - 1, INT64_MAX, INT64_MIN}, {3}).aminmax();
  EXPECT_EQ(small.item<int64_t>(), INT64_MIN);
  EXPECT_EQ(large.item<int64_t>(), INT64_MAX);
  EXPECT_EQ(std::get<0>(full({}, 2.5).aminmax(-1)).dim(), 0);
  EXPECT_EQ(std::get<1>(empty({0, 3}).aminmax(1)).sizes(), Dims{0});
  EXPECT_THROW(empty({0}).aminmax(), IndexError);
  EXPECT_THROW(empty({3, 0}).aminmax(1), IndexError);
  EXPECT_THROW(x.aminmax(2), IndexError);
}

// ---- PyTorch --------------------------------------------------------------------------------------------------------

TEST(Quantize, codes_of_8_bit_floats_are_pytorchs_up_to_the_largest_number) {
  for (const auto& [name, format] : {std::pair{"e4m3", CodeFormat::e4m3}, std::pair{"e5m2", CodeFormat::e5m2}}) {
    const json& values = stored().at("floats").at(name);
    const std::vector<float> inputs = floats(values.at("inputs"));
    std::vector<int> want = values.at("codes");
    // PyTorch gives NaN beyond 464, and for infinities
    for (size_t i = 0; i < want.size(); ++i)
      if (format == CodeFormat::e4m3 && std::fabs(inputs[i]) > 464) want[i] = std::signbit(inputs[i]) ? 0xfe : 0x7e;
    EXPECT_EQ(bytes(quantize_linear(f32(inputs), {}, {}, {}, format)), want) << name;
    std::vector<uint8_t> every(256);
    for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<uint8_t>(i);
    const Tensor numbers = dequantize_linear(from_data(every, {256}), {}, {}, {}, format);
    const std::vector<float> known = floats(values.at("numbers"));
    EXPECT_TRUE(near(numbers, std::vector<double>(known.begin(), known.end()), 0)) << name;
  }
}

TEST(Quantize, int8_codes_and_numbers_are_pytorchs) {
  const json& all = stored().at("int8");
  const Dims sizes{6, 5, 4};
  const Tensor x = f32(floats(all.at("inputs")), sizes);
  for (const json& one : all.at("cases")) {
    const int64_t dim = one.at("dim");
    const std::vector<float> scale = floats(one.at("scale"));
    const std::vector<int32_t> zero = one.at("zero_point");
    const Dims shape = dim < 0 ? Dims{} : Dims{sizes[static_cast<int>(dim)]};
    const std::optional<int64_t> along = dim < 0 ? std::nullopt : std::optional(dim);
    const Tensor scales = f32(scale, shape), zeros = from_data(zero, shape);
    const Tensor codes = quantize_linear(x, scales, zeros, along);
    EXPECT_EQ(codes.dtype(), kI8);
    EXPECT_EQ(bytes(codes), one.at("codes").get<std::vector<int>>()) << one.at("dim") << " " << one.at("scale");
    const std::vector<float> numbers = floats(one.at("numbers"));
    EXPECT_TRUE(near(dequantize_linear(codes, scales, zeros, along),
                     std::vector<double>(numbers.begin(), numbers.end()), 1e-7));
  }
}

TEST(Quantize, products_of_int8_are_pytorchs) {
  for (const json& one : stored().at("products")) {
    const std::vector<int64_t> sizes = one.at("sizes");
    const Tensor a = from_data(one.at("a").get<std::vector<int8_t>>(), {sizes[0], sizes[1]}),
                 b = from_data(one.at("b").get<std::vector<int8_t>>(), {sizes[1], sizes[2]});
    const Tensor c = int8_matmul(a, b);
    EXPECT_EQ(c.dtype(), kI32);
    EXPECT_TRUE(near(c, one.at("product").get<std::vector<double>>(), 0));
  }
}

// ---- scales ---------------------------------------------------------------------------------------------------------

/// Scale and zero point of some elements, as quantize.h defines them, in f32.
struct Scale {
  float scale;
  int zero;
};
Scale scale_of(const std::vector<double>& elements, const QuantScheme& scheme) {
  float low = 0, high = 0;
  for (const double v : elements)
    low = std::min(low, static_cast<float>(v)), high = std::max(high, static_cast<float>(v));
  const float least = std::numeric_limits<float>::min();
  if (scheme.kind == QuantScheme::int8_affine) {
    const float scale = std::max(high / 255 - low / 255, least);
    return {scale, static_cast<int>(std::clamp(-128 - std::nearbyint(low / scale), -128.0f, 127.0f))};
  }
  const float largest = scheme.kind == QuantScheme::e4m3 ? 448 : scheme.kind == QuantScheme::e5m2 ? 57344 : 127;
  return {std::max(std::max(-low, high) / largest, least), 0};
}

/// Compares int8 codes with plain loops. dim: of the channels; -1: one scale for all.
void expect_codes_of_loops(const Tensor& x, int64_t dim, bool affine) {
  const QuantScheme scheme = dim < 0 ? QuantScheme::int8(affine) : QuantScheme::int8_per_channel(dim, affine);
  const Quantized q = quantize(x, scheme);
  EXPECT_EQ(q.dtype, x.dtype());
  EXPECT_EQ(q.codes.sizes(), x.sizes());
  const std::vector<double> values = elements(x), codes = elements(q.codes), back = elements(dequantize(q));
  EXPECT_EQ(dequantize(q).dtype(), x.dtype());
  const size_t channels = dim < 0 ? 1 : static_cast<size_t>(x.size(dim));
  size_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= static_cast<size_t>(x.size(d));
  std::vector<std::vector<double>> own(channels);
  for (size_t i = 0; i < values.size(); ++i) own[i / inner % channels].push_back(values[i]);
  std::vector<Scale> scales;
  for (size_t c = 0; c < channels; ++c) {
    scales.push_back(scale_of(own[c], scheme));
    ASSERT_EQ(static_cast<float>(element(q.scale, static_cast<int64_t>(c))), scales[c].scale);
    if (affine) {
      ASSERT_EQ(element(q.zero_point, static_cast<int64_t>(c)), scales[c].zero);
    }
  }
  const double inexact = is_narrow(x.dtype()) ? 0.02 : 1e-6;
  for (size_t i = 0; i < values.size(); ++i) {
    const Scale& by = scales[i / inner % channels];
    const float ratio = static_cast<float>(values[i]) * (1 / by.scale);
    ASSERT_EQ(codes[i], std::clamp<double>(static_cast<double>(std::nearbyint(ratio)) + by.zero, -128, 127));
    ASSERT_NEAR(back[i], (codes[i] - by.zero) * by.scale, inexact);
    ASSERT_LE(std::fabs(back[i] - values[i]), 0.501 * by.scale + inexact);
  }
}

TEST(Quantize, scales_and_codes_are_those_of_plain_loops_for_every_dtype_and_layout) {
  // The long ones take several blocks of a kernel and several runs of a thread for a channel.
  for (const Dims& sizes : {Dims{3, 40, 5}, Dims{2, 5000}, Dims{3, 4099}})
    for (const bool affine : {false, true})
      for (int64_t dim = -1; dim < sizes.size(); ++dim)
        for (const DType dtype : {kF16, kBF16, kF32, kF64})
          for (const Memory memory : kMemories) {
            if (checked_numel(sizes) > 1000 && dtype != kF32 && dtype != kBF16) continue;
            SCOPED_TRACE(std::string(name(dtype)) + (affine ? " affine" : "") + " dim " + std::to_string(dim));
            expect_codes_of_loops(sample(sizes, dtype, 11, memory), dim, affine);
          }
}

TEST(Quantize, scaled_8_bit_floats_use_the_whole_range) {
  for (const QuantScheme& scheme : {QuantScheme::float8_e4m3(true), QuantScheme::float8_e5m2(true)}) {
    const Tensor x = f32({-3e-7f, 1e-9f, 2e-7f, 0.0f});
    const Quantized q = quantize(x, scheme);
    EXPECT_EQ(static_cast<float>(element(q.scale, 0)), scale_of(elements(x), scheme).scale);
    const std::vector<double> back = elements(dequantize(q));
    EXPECT_NEAR(back[0], -3e-7, 1e-12);
    EXPECT_NEAR(back[2], 2e-7, 2e-7 / 8);
    EXPECT_EQ(back[3], 0);
  }
}

TEST(Quantize, blocks_are_coded_as_the_optimizers_code_them) {
  for (const int64_t n : {1, 255, 256, 257, 1000})
    for (const DType dtype : {kF16, kBF16, kF32, kF64}) {
      const Tensor x = sample({n}, dtype, 5);
      const auto [codes, scales] = quantize_blocks(x);
      ASSERT_EQ(scales.sizes(), Dims{formula::quant_blocks(n)});
      const std::vector<double> values = elements(x), back = elements(dequantize_blocks(codes, scales, kF64));
      for (int64_t first = 0; first < n; first += formula::kQuantBlock) {
        const int64_t last = std::min<int64_t>(n, first + formula::kQuantBlock);
        uint32_t largest = 0;
        for (int64_t i = first; i < last; ++i)
          largest =
              std::max(largest, std::bit_cast<uint32_t>(std::fabs(static_cast<float>(values[static_cast<size_t>(i)]))));
        const formula::QuantScale by = formula::quant_scale(largest);
        ASSERT_EQ(element(scales, first / formula::kQuantBlock), by.scale);
        for (int64_t i = first; i < last; ++i) {
          const auto value = static_cast<float>(values[static_cast<size_t>(i)]);
          const uint32_t code = formula::QuantCode<true>::encode(value, by);
          ASSERT_EQ(element(codes, i), code) << i << " of " << n;
          ASSERT_EQ(back[static_cast<size_t>(i)], formula::QuantCode<true>::decode(code) * by.scale);
        }
      }
    }
}

// ---- edges ----------------------------------------------------------------------------------------------------------

TEST(Quantize, every_rank_and_empty_tensors_come_back_with_their_sizes) {
  for (const QuantScheme& scheme : kSchemes)
    for (int rank = 0; rank <= 8; ++rank) {
      if (scheme.dim && rank == 0) continue;
      const Tensor x = sample(Dims::filled(rank, 2), kF32, 3);
      const Quantized q = quantize(x, scheme);
      EXPECT_EQ(dequantize(q).sizes(), x.sizes());
      const std::vector<double> values = elements(x), back = elements(dequantize(q));
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(back[i], values[i], 0.13 * std::fabs(values[i]) + 0.02) << to_string(scheme) << " rank " << rank;
    }
  for (const QuantScheme& scheme : kSchemes)
    for (const Dims& sizes : {Dims{0}, Dims{3, 0}, Dims{0, 3}, Dims{2, 0, 3}}) {
      const Quantized q = quantize(empty(sizes), scheme);
      EXPECT_EQ(q.codes.sizes(), sizes) << to_string(scheme);
      EXPECT_EQ(dequantize(q).sizes(), sizes) << to_string(scheme);
      EXPECT_EQ(q.rate(), 1);
    }
}

TEST(Quantize, equal_elements_and_zeros_come_back_exactly) {
  for (const QuantScheme& scheme : kSchemes)
    for (const double value : {0.0, 1.0, -0.5, 256.0}) {
      const Tensor x = full({3, 300}, value);
      for (const double back : elements(dequantize(quantize(x, scheme))))
        ASSERT_NEAR(back, value, 1e-6 * std::fabs(value)) << to_string(scheme);
    }
}

TEST(Quantize, zero_stays_zero_beside_anything) {
  for (const QuantScheme& scheme : kSchemes) {
    const Tensor x = f32({0, 5, 7.3f, 1, 0, 2.9f, 8, 3.1f}, {2, 4});
    const std::vector<double> back = elements(dequantize(quantize(x, scheme)));
    EXPECT_EQ(back[0], 0) << to_string(scheme);
    EXPECT_EQ(back[4], 0) << to_string(scheme);
  }
}

TEST(Quantize, subnormal_and_huge_elements_stay_finite) {
  for (const QuantScheme& scheme : kSchemes) {
    const std::vector<double> small = elements(dequantize(quantize(f32({1e-40f, -1e-41f}, {1, 2}), scheme)));
    for (const double v : small) EXPECT_LE(std::fabs(v), 0x1p-126) << to_string(scheme);
    if (!scheme.scaled && scheme.kind >= QuantScheme::e4m3) continue;
    const std::vector<double> huge = elements(dequantize(quantize(f32({3e38f, -2.9e38f}, {1, 2}), scheme)));
    EXPECT_NEAR(huge[0], 3e38, 0.13 * 3e38) << to_string(scheme);
    EXPECT_NEAR(huge[1], -2.9e38, 0.13 * 3e38) << to_string(scheme);
  }
}

TEST(Quantize, a_nan_or_an_infinity_is_never_decoded_to_a_number_where_a_scale_covers_it) {
  for (const QuantScheme& scheme : kSchemes)
    for (const double bad : {kNaN, kInf, -kInf}) {
      const Tensor x = f32({1, 2, static_cast<float>(bad), 4}, {1, 4});
      const std::vector<double> back = elements(dequantize(quantize(x, scheme)));
      if (scheme.scaled || scheme.kind < QuantScheme::e4m3) {
        EXPECT_TRUE(std::isnan(back[2])) << to_string(scheme);
        const bool shared = scheme.dim != -1;
        EXPECT_EQ(std::isnan(back[0]), shared) << to_string(scheme);
        continue;
      }
      EXPECT_EQ(back[0], 1);
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(back[2]));
      } else if (scheme.kind == QuantScheme::e5m2) {
        EXPECT_EQ(back[2], bad);
      } else {
        EXPECT_EQ(back[2], std::copysign(448, bad));
      }
    }
}

TEST(Quantize, results_carry_no_gradient) {
  const Tensor x = sample({4, 4}, kF32, 1).requires_grad_();
  for (const QuantScheme& scheme : kSchemes) {
    const Quantized q = quantize(x, scheme);
    EXPECT_FALSE(q.codes.requires_grad());
    EXPECT_FALSE(q.scale.defined() && q.scale.requires_grad());
    EXPECT_FALSE(dequantize(q).requires_grad());
  }
  EXPECT_FALSE(int8_linear(x, quantize(x, QuantScheme::int8_per_channel(0))).requires_grad());
}

TEST(Quantize, the_rate_counts_codes_and_scales) {
  const Tensor x = sample({16, 512}, kF32, 1);
  const auto rate = [&](const QuantScheme& scheme) { return quantize(x, scheme).rate(); };
  EXPECT_EQ(quantize(x, QuantScheme::int8()).nbytes(), 16 * 512 + 4);
  EXPECT_EQ(quantize(x, QuantScheme::int8(true)).nbytes(), 16 * 512 + 8);
  EXPECT_EQ(quantize(x, QuantScheme::int8_per_channel(0)).nbytes(), 16 * 512 + 4 * 16);
  EXPECT_EQ(quantize(x, QuantScheme::blocks()).nbytes(), 16 * 512 + 4 * 32);
  EXPECT_EQ(rate(QuantScheme::float8_e4m3()), 0.25);
  EXPECT_EQ(quantize(x.to(kBF16), QuantScheme::float8_e5m2()).rate(), 0.5);
}

TEST(Quantize, wrong_arguments_are_refused) {
  const Tensor x = sample({4, 6}, kF32, 1);
  for (const DType dtype : {kBool, kU8, kI8, kI32, kI64})
    for (const QuantScheme& scheme : kSchemes) EXPECT_THROW(quantize(x.to(dtype), scheme), DTypeError);
  EXPECT_THROW(quantize(Tensor(), QuantScheme::int8()), ValueError);
  EXPECT_THROW(quantize(x, QuantScheme::int8_per_channel(2)), IndexError);
  EXPECT_THROW(quantize(full({}, 1.0), QuantScheme::int8_per_channel(0)), IndexError);
  EXPECT_THROW(quantize(x, {.kind = QuantScheme::block8, .dim = 0}), ValueError);
  EXPECT_THROW(quantize(x, {.kind = QuantScheme::int8_affine, .scaled = true}), ValueError);
  EXPECT_THROW(dequantize(Quantized{}), ValueError);
  EXPECT_THROW(dequantize(quantize(x, QuantScheme::int8()), kI32), DTypeError);
  EXPECT_THROW(quantize_linear(x, f32({1, 1}), {}, 0), ShapeError);
  EXPECT_THROW(quantize_linear(x, f32({1, 1}, {2}).to(kF64), {}, 0), DTypeError);
  EXPECT_THROW(quantize_linear(x, full({}, 1.0), full({}, 0, {.dtype = kI32}), {}, CodeFormat::e4m3), ValueError);
  EXPECT_THROW(dequantize_linear(x, full({}, 1.0)), DTypeError);
  EXPECT_THROW(dequantize_linear(x.to(kU8), full({}, 1.0)), DTypeError);
  EXPECT_THROW(dequantize_blocks(x.to(kU8), f32({1, 1})), ShapeError);
  EXPECT_THROW(int8_matmul(x.to(kI8), x.to(kI8)), ShapeError);
  EXPECT_THROW(int8_matmul(x, x.t()), DTypeError);
  EXPECT_THROW(int8_matmul(x.to(kI8), x.t().to(kI32)), DTypeError);
  EXPECT_THROW(int8_linear(x, quantize(x, QuantScheme::int8())), ValueError);
  EXPECT_THROW(int8_linear(x.t(), quantize(x, QuantScheme::int8_per_channel(0))), ShapeError);
}

// ---- products -------------------------------------------------------------------------------------------------------

/// Codes from the whole range; the first ones the smallest.
Tensor random_codes(const Dims& sizes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int8_t> data(static_cast<size_t>(checked_numel(sizes)));
  for (int8_t& v : data) v = static_cast<int8_t>(random());
  std::fill_n(data.begin(), std::min<size_t>(data.size(), 40), int8_t{-128});
  return from_data(data, sizes);
}

void expect_product(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = elements(a), y = elements(b);
  const auto m = static_cast<size_t>(a.size(-2)), k = static_cast<size_t>(a.size(-1)),
             n = static_cast<size_t>(b.size(-1));
  const Tensor c = int8_matmul(a, b);
  const std::vector<double> got = elements(c);
  ASSERT_EQ(c.dtype(), kI32);
  ASSERT_EQ(got.size(), x.size() / std::max<size_t>(1, k) * n) << "of " << m << " x " << k << " x " << n;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t batch = i / (m * n), row = i / n % m, column = i % n;
    double sum = 0;
    for (size_t p = 0; p < k; ++p) sum += x[(batch * m + row) * k + p] * y[(batch * k + p) * n + column];
    ASSERT_EQ(got[i], sum) << m << " x " << k << " x " << n << " at " << i;
  }
}

TEST(Int8Matmul, gives_what_loops_give_for_sizes_that_fit_no_tile_and_for_every_layout) {
  for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {1, 64, 1}, {3, 5, 7}, {16, 16, 16}, {17, 33, 65}, {64, 300, 32}, {130, 20, 270}, {2, 5000, 3}})
    for (const bool a_columns : {false, true})
      for (const bool b_columns : {false, true}) {
        const Tensor a = a_columns ? random_codes({k, m}, 1).t() : random_codes({m, k}, 1);
        const Tensor b = b_columns ? random_codes({n, k}, 2).t() : random_codes({k, n}, 2);
        expect_product(a, b);
      }
  expect_product(random_codes({8, 12}, 1).slice(1, 0, {}, 2), random_codes({6, 12}, 2).slice(1, 0, {}, 3));
}

/// One row and one column of every batch are checked: the whole would take seconds.
void expect_large_product(const Tensor& a, const Tensor& b) {
  const Tensor c = int8_matmul(a, b);
  const auto part = [](const Tensor& x, int64_t dim) { return x.slice(dim, x.size(dim) - 1, x.size(dim)); };
  EXPECT_TRUE(equal(part(c, -2).to(kF64), matmul(part(a, -2).to(kF64), b.to(kF64)))) << describe(a) << describe(b);
  EXPECT_TRUE(equal(part(c, -1).to(kF64), matmul(a.to(kF64), part(b, -1).to(kF64)))) << describe(a) << describe(b);
}

TEST(Int8Matmul, large_products_take_operands_of_every_layout_with_and_without_tuning) {
  const bool before = matmul_tuning();
  for (const bool tuning : {false, true}) {
    set_matmul_tuning(tuning);
    for (const int64_t k : {512, 514})
      for (const int64_t n : {512, 510})
        for (const bool a_columns : {false, true})
          for (const bool b_columns : {false, true}) {
            const Tensor a = a_columns ? random_codes({k, 300}, 1).t() : random_codes({300, k}, 1);
            const Tensor b = b_columns ? random_codes({n, k}, 2).t() : random_codes({k, n}, 2);
            expect_large_product(a, b);
          }
    const Tensor wide = random_codes({3, 300, 513}, 3);  // rows that start at every address
    expect_large_product(wide.slice(2, 1, 513), random_codes({3, 512, 512}, 4).transpose(1, 2));
  }
  set_matmul_tuning(before);
}

TEST(Int8Matmul, multiplies_batches_and_nothing) {
  expect_product(random_codes({3, 5, 8}, 1), random_codes({3, 8, 6}, 2));
  expect_product(random_codes({3, 8, 5}, 1).transpose(1, 2), random_codes({3, 6, 8}, 2).transpose(1, 2));
  expect_product(random_codes({1, 5, 8}, 1).expand({4, 5, 8}), random_codes({4, 8, 6}, 2));
  for (const double v : elements(int8_matmul(random_codes({3, 0}, 1), random_codes({0, 2}, 1)))) EXPECT_EQ(v, 0);
  EXPECT_EQ(int8_matmul(random_codes({0, 4}, 1), random_codes({4, 2}, 1)).sizes(), (Dims{0, 2}));
}

TEST(Int8Matmul, sums_are_exact_where_16_bits_would_not_do) {
  const Tensor a = full({4, 1000}, -128, {.dtype = kI8}), b = full({1000, 4}, -128, {.dtype = kI8});
  for (const double v : elements(int8_matmul(a, b))) EXPECT_EQ(v, 128.0 * 128 * 1000);
  for (const double v : elements(int8_matmul(a, full({1000, 4}, 127, {.dtype = kI8}))))
    EXPECT_EQ(v, -128.0 * 127 * 1000);
}

TEST(Int8Linear, is_the_product_of_what_the_codes_stand_for) {
  for (const DType dtype : {kBF16, kF32, kF64})
    for (const bool with_bias : {false, true}) {
      const Tensor x = sample({2, 3, 40}, dtype, 1), weight = sample({8, 40}, kF32, 2), bias = sample({8}, kF32, 3);
      const Quantized w = quantize(weight, QuantScheme::int8_per_channel(0));
      const Tensor y = int8_linear(x, w, with_bias ? bias : Tensor());
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.sizes(), (Dims{2, 3, 8}));
      const std::vector<double> got = elements(y), coded = elements(dequantize(w, kF64)),
                                rows = elements(
                                    dequantize(quantize(x.reshape({6, 40}), QuantScheme::int8_per_channel(0)), kF64)),
                                exact_x = elements(x), exact_w = elements(weight);
      for (size_t i = 0; i < got.size(); ++i) {
        double sum = with_bias ? element(bias, static_cast<int64_t>(i % 8)) : 0, exact = sum;
        for (size_t p = 0; p < 40; ++p) {
          sum += rows[i / 8 * 40 + p] * coded[i % 8 * 40 + p];
          exact += exact_x[i / 8 * 40 + p] * exact_w[i % 8 * 40 + p];
        }
        EXPECT_NEAR(got[i], sum, dtype == kBF16 ? 0.01 * std::fabs(sum) + 1e-3 : 1e-4);
        EXPECT_NEAR(got[i], exact, 0.6) << "elements are up to 3, and errors of a product up to 0.04";
      }
    }
  EXPECT_EQ(int8_linear(empty({0, 40}), quantize(sample({8, 40}, kF32, 2), QuantScheme::int8_per_channel(0))).sizes(),
            (Dims{0, 8}));
}

}  // namespace
}  // namespace lorry::test
