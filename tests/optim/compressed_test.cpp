// Arrays in fewer than 32 bits, on the device of these tests: decompress and compress give the bits of the scalar
// formulas, and what the forms promise holds where they are used.

#include <cmath>
#include <set>

#include "lorry/tensor/tensor.h"
#include "tests/optim/lists.h"

namespace lorry::optim::test {
namespace {

using lorry::test::Copied;

struct Form {
  StateType type;
  bool is_signed = true;
};
constexpr Form kForms[] = {{kHalf}, {kQ8, true}, {kQ8, false}};
constexpr Strategy kEveryStrategy[] = {Strategy::automatic,       Strategy::per_tensor,   Strategy::kernel_args_4k,
                                       Strategy::kernel_args_32k, Strategy::device_table, Strategy::mapped_table,
                                       Strategy::managed_table};
/// Counts around blocks and runs, empties among them.
const std::vector<int64_t> kCounts = {0, 1, 3, 7, 8, 9, 255, 256, 257, 511, 513, 0, 1'025, 4'099, 70'001};

/// Values of which every block is another case: of any magnitudes, zeros, subnormals alone, with an infinity, a NaN,
/// the ends of the range.
std::vector<float> values_of(int64_t count, bool is_signed, uint64_t seed) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max(),
                  kMin = std::numeric_limits<float>::min();
  Numbers numbers(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    float x = numbers.next(30);
    const int64_t block = i / formula::kQuantBlock + static_cast<int64_t>(seed), at = i % formula::kQuantBlock;
    switch (block % 11) {
      case 1:
        x = 0;
        break;
      case 2:
        x = std::ldexp(x, -140);
        break;
      case 3:
        x = at == 200 ? -kInf : x;
        break;
      case 4:
        x = at == 0 ? NAN : x;
        break;
      case 5:
        x = at % 50 == 1 ? kMax : x * kMax;
        break;
      case 6:
        x = at == 7 ? kMin : x * kMin;
        break;
      case 7:
        x = at % 3 == 0 ? -0.0f : std::ldexp(x, -static_cast<int>(at) / 2);
        break;
      case 8:
        x = at % 9 == 0 ? std::bit_cast<float>(0xff800001u) : x;
        break;
      default:
        break;
    }
    values.push_back(is_signed ? x : std::fabs(x));
  }
  return values;
}

/// Entries of f32 arrays and their compressed forms on a device.
class CompressedList {
 public:
  CompressedList(Device device, Form form, const std::vector<int64_t>& counts, Strategy strategy = Strategy::automatic)
      : form_(form),
        list_(device, std::vector<DType>{kF32, dtype_of_state(form.type)}, strategy),
        steps_(device, {kStep}) {
    for (size_t e = 0; e < counts.size(); ++e) {
      const auto shift = static_cast<int64_t>(e % 3 == 0 ? 0 : e % 4);
      wide_.emplace_back(device, values_of(counts[e], form.is_signed, e), shift);
      const std::vector<uint8_t> untouched(static_cast<size_t>(compressed_bytes(form.type, counts[e])), uint8_t{0x5a});
      compressed_.emplace_back(device, untouched, form.type == kQ8 ? 4 * shift : 2 * shift);
      list_.add({{wide_[e].data(), compressed_[e].data()}, counts[e], 0, number(e)});
    }
  }

  static constexpr double kStep = 12'345;
  static constexpr uint64_t kSeed = 0xfedcba9876543210u;
  static constexpr uint32_t kArray = 2;
  static uint32_t number(size_t entry) { return kernels::kMaxWord - 5 * static_cast<uint32_t>(entry); }

  kernels::CompressedCall call(const double* grad_factor = nullptr) const {
    return {.list = list_,
            .type = form_.type,
            .is_signed = form_.is_signed,
            .grad_factor = grad_factor,
            .seed = kSeed,
            .array = kArray,
            .steps = steps_.data()};
  }
  void store(const double* grad_factor = nullptr) const {
    kernels().compress(call(grad_factor), current_stream(list_.device()));
  }
  void load() const { kernels().decompress(call(), current_stream(list_.device())); }
  const kernels::OptimKernels& kernels() const { return *kernels::backend(list_.device()).optim; }
  std::vector<float> wide(size_t entry) const { return wide_[entry].read(); }
  std::vector<uint8_t> compressed(size_t entry) const { return compressed_[entry].read(); }

  /// What `compress` is to write.
  std::vector<uint8_t> expected(size_t entry) const {
    std::vector<uint8_t> bytes(compressed(entry).size(), uint8_t{0x5a});
    test::store(wide(entry), form_.type, form_.is_signed, formula::rounding_key(kSeed, number(entry), kArray, kStep),
                bytes.data());
    return bytes;
  }

 private:
  Form form_;
  kernels::List list_;
  Copied<double> steps_;
  std::vector<Copied<float>> wide_;
  std::vector<Copied<uint8_t>> compressed_;
};

TEST(CompressedArrays, compress_writes_and_decompress_reads_the_bits_of_the_formulas) {
  for (const Form& form : kForms)
    for (const Strategy strategy : kEveryStrategy) {
      SCOPED_TRACE(
          fmt::format("type {}, signed {}, {}", static_cast<int>(form.type), form.is_signed, lorry::name(strategy)));
      const CompressedList x(default_device(), form, kCounts, strategy);
      std::vector<std::vector<uint8_t>> expected;
      for (size_t e = 0; e < kCounts.size(); ++e) expected.push_back(x.expected(e));
      x.store();
      for (size_t e = 0; e < kCounts.size(); ++e)
        EXPECT_EQ(x.compressed(e), expected[e]) << "entry " << e << " with " << kCounts[e] << " elements";
      x.load();
      for (size_t e = 0; e < kCounts.size(); ++e)
        EXPECT_TRUE(
            lorry::test::same_bits(x.wide(e), loaded(form.type, form.is_signed, expected[e].data(), kCounts[e])))
            << "entry " << e;
      // What was decoded keeps its bits: but a tiny block's, whose products are subnormal, may move to its neighbours.
      x.store();
      for (size_t e = 0; e < 6; ++e) EXPECT_EQ(x.compressed(e), expected[e]) << "entry " << e << " once more";
    }
}

TEST(CompressedArrays, a_step_that_is_left_out_stores_nothing) {
  const Copied<double> nan(default_device(), {std::numeric_limits<double>::quiet_NaN()}),
      infinite(default_device(), {INFINITY});
  for (const Form& form : kForms) {
    const CompressedList x(default_device(), form, kCounts);
    const std::vector<uint8_t> before = x.compressed(8), expected = x.expected(8);
    x.store(nan.data());
    EXPECT_EQ(x.compressed(8), before);
    x.store(infinite.data());
    EXPECT_EQ(x.compressed(8), expected);
  }
}

TEST(CompressedArrays, an_element_is_off_by_no_more_than_half_of_its_gap_in_the_map) {
  constexpr int64_t kCount = 100'000;
  for (const Form& form : {kForms[1], kForms[2]}) {
    const CompressedList x(default_device(), form, {0, 0, 0, kCount});
    const std::vector<float> before = x.wide(3);
    x.store();
    x.load();
    const std::vector<float> after = x.wide(3);
    for (int64_t begin = 0; begin < kCount; begin += formula::kQuantBlock) {
      const auto first = static_cast<size_t>(begin),
                 last = static_cast<size_t>(std::min(kCount, begin + formula::kQuantBlock));
      double largest = 0;
      bool finite = true;
      for (size_t i = first; i < last; ++i) {
        largest = std::max<double>(largest, std::fabs(before[i]));
        finite = finite && std::isfinite(before[i]);
      }
      for (size_t i = first; i < last; ++i) {
        ASSERT_EQ(std::isnan(after[i]), !finite) << "element " << i;
        if (!finite) continue;
        if (largest < std::numeric_limits<float>::min()) {
          ASSERT_EQ(after[i], 0) << "element " << i;
          continue;
        }
        // In (8^-(e+1), 8^-e] of the largest, numbers are 7/8 8^-e / 2^n apart; codes are the nearest to a 256th of
        // that.
        const double ratio = std::fabs(before[i]) / largest;
        int e = 0;
        while (e < 7 && ratio <= std::exp2(-3 * (e + 1))) ++e;
        const int n = std::max(0, (form.is_signed ? 6 : 7) - e);
        const double gap = 0.875 * std::exp2(-3 * e - n);
        ASSERT_LE(std::fabs(static_cast<double>(after[i]) - before[i]),
                  (gap * (0.5 + 1.0 / 256) + 3e-6) * largest + 1.5e-45)
            << "element " << i << ", " << before[i] << " of " << largest;
      }
    }
  }
}

TEST(CompressedArrays, rounding_to_bf16_has_the_number_for_its_mean_and_other_bits_at_every_step) {
  constexpr int64_t kCount = 1 << 16;
  constexpr float kValue = 1 + 0x1p-7f * 0.3f;
  const Device device = default_device();
  const Copied<float> wide(device, std::vector<float>(kCount, kValue));
  const Copied<uint16_t> half(device, std::vector<uint16_t>(kCount));
  kernels::List list(device, std::vector<DType>{kF32, kBF16});
  list.add({{wide.data(), half.data()}, kCount, 0, 9});
  std::set<std::vector<uint16_t>> seen;
  const auto store = [&](uint64_t seed, uint32_t array, double step) {
    const Copied<double> steps(device, {step});
    kernels::backend(device).optim->compress(
        {.list = list, .type = kHalf, .seed = seed, .array = array, .steps = steps.data()}, current_stream(device));
    const std::vector<uint16_t> bits = half.read();
    double mean = 0;
    for (const uint16_t x : bits) {
      ASSERT_TRUE(x == 0x3f80 || x == 0x3f81);
      mean += static_cast<double>(static_cast<float>(BFloat16::from_bits(x))) / kCount;
    }
    EXPECT_NEAR(mean, kValue, 5 * 0x1p-7 * std::sqrt(0.3 * 0.7 / kCount));
    EXPECT_TRUE(seen.insert(bits).second) << "seed " << seed << " array " << array << " step " << step;
  };
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (const uint32_t array : {0u, 1u, 3u})
      for (const double step : {1.0, 2.0, 1e6}) store(seed, array, step);
}

}  // namespace
}  // namespace lorry::optim::test
