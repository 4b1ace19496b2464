// Printing, against PyTorch's texts as stored by tests/peers/make_print_values.py.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"

namespace lorry {
namespace {

using test::Coordinates;

/// The tensor that a stored case describes.
Tensor tensor_of(const nlohmann::json& c) {
  const Dims sizes(c["sizes"].get<std::vector<int64_t>>());
  const DType dtype = parse_dtype(c["dtype"].get<std::string>());
  if (c.contains("values")) {
    std::istringstream words(c["values"].get<std::string>());
    std::vector<std::string> values(std::istream_iterator<std::string>(words), {});
    if (dtype == kI64) {  // beyond the whole numbers of a double
      std::vector<int64_t> whole;
      for (const std::string& v : values) whole.push_back(std::strtoll(v.c_str(), nullptr, 10));
      return from_data(whole, sizes);
    }
    std::vector<double> real;
    for (const std::string& v : values) real.push_back(std::strtod(v.c_str(), nullptr));
    return from_data(real, sizes).to(dtype);
  }
  const Tensor x = empty(sizes, {dtype});
  const auto times = c["times"].get<float>(), over = c["over"].get<float>();
  int64_t i = 0;
  test::for_each_coordinate(
      sizes, [&](const Coordinates& at) { test::set_element(x, at, static_cast<float>(i++) * times / over); });
  return x;
}

std::string text_of(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Print, writes_what_pytorch_writes) {
  std::ifstream file(LORRY_TEST_DATA "/print_values.json");
  const nlohmann::json stored = nlohmann::json::parse(file);
  ASSERT_GT(stored["cases"].size(), 60u);
  for (const auto& c : stored["cases"]) EXPECT_EQ(text_of(tensor_of(c)), c["text"].get<std::string>());
}

TEST(Print, strides_do_not_show) {
  const Tensor x = arange(6).reshape({2, 3}).t();
  EXPECT_EQ(text_of(x), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])");
  EXPECT_EQ(text_of(ones({1}).expand({2000})), text_of(ones({2000})));
}

TEST(Print, names_what_gradients_need) {
  const Tensor x = ones({2}).requires_grad_();
  EXPECT_EQ(text_of(x), "tensor([1., 1.], requires_grad=True)");
  EXPECT_EQ(text_of(x.mul(2)), "tensor([2., 2.], grad_fn=<mul>)");
  EXPECT_EQ(text_of(x.detach()), "tensor([1., 1.])");
  const Tensor wide = full({1, 9}, 0.5, {kF64}).requires_grad_();
  EXPECT_NE(text_of(wide).find("0.5000]],\n       dtype=f64, requires_grad=True)"), std::string::npos) << text_of(wide);
}

TEST(Print, an_undefined_tensor_says_so) { EXPECT_EQ(text_of(Tensor()), "tensor(undefined)"); }

}  // namespace
}  // namespace lorry
