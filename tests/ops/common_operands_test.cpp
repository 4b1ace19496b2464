// Operands are converted to their common type: what that type does not tell apart is equal, whatever the kernels
// compute in. Values are PyTorch's.

#include <gtest/gtest.h>

#include "tests/ops/operands.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

constexpr int64_t kNumbers[] = {-1, 0, 3, 255, 256, -256, 257, 300, 1000, int64_t{1} << 40};
using Binary = Tensor (*)(const Tensor&, const Operand&);

struct Row {
  const char* name;
  Binary call;
  bool divides = false;
};
const Row kRows[] = {
    {"eq", eq},
    {"ne", ne},
    {"lt", lt},
    {"le", le},
    {"gt", gt},
    {"ge", ge},
    {"logical_and", logical_and},
    {"logical_xor", logical_xor},
    {"add", add},
    {"mul", mul},
    {"bitwise_and", bitwise_and},
    {"left shift", bitwise_left_shift},
    {"right shift", bitwise_right_shift},
    {"floor_divide", floor_divide, true},
    {"trunc_divide", trunc_divide, true},
    {"remainder", remainder, true},
    {"fmod", fmod, true},
};

TEST(CommonOperands, a_number_wraps_into_the_dtype_of_whole_numbers) {
  for (const DType t : kShortDTypes) {
    const Tensor x = empty({5}, {t});
    const double last = visit(t, []<class T>(Type<T>) { return static_cast<double>(static_cast<T>(-1)); }),
                 values[] = {0, 3, 44, 100, last};
    for (int i = 0; i < 5; ++i) set_element(x, i, values[i]);
    for (const int64_t number : kNumbers) {
      const int64_t wrapped = visit(t, [&]<class T>(Type<T>) { return static_cast<int64_t>(static_cast<T>(number)); });
      Tensor same = empty({5}, {t});
      for (int i = 0; i < 5; ++i) set_element(same, i, static_cast<double>(wrapped));
      for (const Row& row : kRows) {
        SCOPED_TRACE(std::string(row.name) + " of " + std::string(name(t)) + " and " + std::to_string(number));
        if (row.divides && wrapped == 0) {
          EXPECT_THROW(row.call(x, number), ValueError);
          continue;
        }
        const Tensor want = row.call(x, same);
        EXPECT_TRUE(same_values(row.call(x, number), want));
        EXPECT_TRUE(same_values(row.call(x, tensor(number)), want)) << "and so does a 0-d tensor";
      }
    }
  }
}

TEST(CommonOperands, a_byte_equals_minus_one_where_it_is_255) {
  const Tensor x = tensor({255, 0, 3}).to(kU8);
  EXPECT_EQ((x == -1).to_vector<bool>(), (std::vector<bool>{true, false, false}));
  EXPECT_EQ((x < -1).to_vector<bool>(), (std::vector<bool>{false, true, true}));
  EXPECT_EQ((-1 < x).to_vector<bool>(), (std::vector<bool>{false, false, false}));
  EXPECT_EQ((x == tensor({-1})).to_vector<bool>(), (std::vector<bool>{false, false, false}))
      << "a vector of i64 widens the bytes";
  EXPECT_EQ(x.add(300).to_vector<int64_t>(), (std::vector<int64_t>{43, 44, 47}));
  EXPECT_EQ(maximum(x, tensor(-1)).to_vector<int64_t>(), (std::vector<int64_t>{255, 255, 255}));
}

TEST(CommonOperands, bounds_beyond_the_dtype_bound_nothing_or_are_refused) {
  const Tensor x = tensor({255, 0, 3}).to(kU8);
  EXPECT_TRUE(equal(clamp_min(x, -1), x));
  EXPECT_TRUE(equal(clamp(x, -5, 300), x));
  EXPECT_TRUE(equal(clamp_max(x, 300), x));
  EXPECT_THROW(clamp_max(x, -1), ValueError) << "no byte is -1 or less";
  EXPECT_THROW(clamp_min(x, 300), ValueError);
  EXPECT_THROW(clamp(x, -5, -1), ValueError);
  EXPECT_THROW(x.clamp_(300, 400), ValueError);
}

TEST(CommonOperands, a_number_is_rounded_to_16_bits_before_it_is_compared_or_divides) {
  for (const DType t : kNarrowDTypes) {
    const Tensor x = tensor({0.1, 1.0, 2.3}).to(t);
    EXPECT_EQ((x == 0.1).to_vector<bool>(), (std::vector<bool>{true, false, false}));
    EXPECT_EQ((x <= 2.3).to_vector<bool>(), (std::vector<bool>{true, true, true}));
    EXPECT_EQ((x < tensor(0.1)).to_vector<bool>(), (std::vector<bool>{false, false, false}));
    EXPECT_EQ((0.1 < x).to_vector<bool>(), (std::vector<bool>{false, true, true}));
  }
  EXPECT_TRUE((full({1}, INFINITY, {.dtype = kF16}) == 70000).item<bool>());
  for (const DType t : kNarrowDTypes)
    for (const double number : {0.1, 2.3, -1.7}) {
      const Tensor x = random_tensor({40}, t, 1), same = full({40}, number, {.dtype = t});
      for (const Binary f : {Binary(remainder), Binary(fmod), Binary(pow), Binary(atan2)}) {
        EXPECT_TRUE(same_values(f(x, number), f(x, same)));
        EXPECT_TRUE(same_values(f(x, tensor(number)), f(x, same)));
      }
      EXPECT_TRUE(same_values(x.mul(number), x.to(kF32).mul(number).to(t))) << "a factor keeps its digits";
    }
}

TEST(CommonOperands, whole_numbers_are_rounded_to_the_16_bits_beside_them) {
  EXPECT_TRUE((tensor({2048.0}).to(kF16) == tensor({2049})).item<bool>());
  EXPECT_EQ(tensor({0.5}).to(kF16).mul(tensor({2051})).item<double>(), 1026);
  EXPECT_EQ(tensor({0.125}).to(kBF16).mul(tensor({1003}).to(kI16)).item<double>(), 125.5);
}

TEST(CommonOperands, in_place_and_out_forms_convert_as_the_plain_form_does) {
  const Tensor x = tensor({255, 0, 3}).to(kU8);
  EXPECT_TRUE(equal(eq_out(empty({3}, {kBool}), x, -1), x == -1));
  EXPECT_TRUE(equal(x.clone().floor_divide_(300), floor_divide(x, 300)));
  EXPECT_EQ(floor_divide(x, 300).to_vector<int64_t>(), (std::vector<int64_t>{5, 0, 0}));
}

}  // namespace
}  // namespace lorry::test
