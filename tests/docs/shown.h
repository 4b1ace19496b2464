#pragma once

// What the code of a page is compiled with: a folder of its own to run in, and values as text, as
// tests/peers/make_pytorch_values.py writes them.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "lorry/lorry.h"

namespace lorry::docs {

class Page : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
    manual_seed(0);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("lorry_page_{}", static_cast<long>(getpid()));
};

inline std::string shown(const Tensor& x) { return to_string(x.defined() ? x.detach() : x); }
inline std::string shown(bool b) { return b ? "True" : "False"; }
inline std::string shown(int64_t n) { return std::to_string(n); }
inline std::string shown(int n) { return std::to_string(n); }
inline std::string shown(double v) { return fmt::format("{:.6g}", v); }
inline std::string shown(float v) { return shown(static_cast<double>(v)); }
inline std::string shown(const std::string& text) { return text; }
inline std::string shown(DType dtype) { return std::string(name(dtype)); }
inline std::string shown(const Dims& sizes) { return to_string(sizes); }

template <class T>
std::string shown(const std::vector<T>& items) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + shown(item);
  return "[" + text + "]";
}
template <class... T>
std::string shown(const std::tuple<T...>& items) {
  return std::apply([](const auto&... item) { return shown(std::vector<std::string>{shown(item)...}); }, items);
}
inline std::string shown(const foreach::TensorList& list) {
  return shown(std::vector<Tensor>(list.begin(), list.end()));
}

/// Whether two texts are the same but for spaces and for the last of the four digits that tensors are printed with.
inline bool same(const std::string& ours, const std::string& theirs) {
  const auto skip = [](const char* at) { return at + std::strspn(at, " \n"); };
  const char *a = skip(ours.c_str()), *b = skip(theirs.c_str());
  while (*a != 0 && *b != 0) {
    char *a_end, *b_end;
    const double x = std::strtod(a, &a_end), y = std::strtod(b, &b_end);
    if ((a_end == a) != (b_end == b)) return false;
    if (a_end != a) {
      if (x != y && !(std::abs(x - y) <= 2e-4 * std::max(1.0, std::abs(y))) && !(x != x && y != y)) return false;
    } else if (*a_end++ != *b_end++) {
      return false;
    }
    a = skip(a_end), b = skip(b_end);
  }
  return *a == *b;
}

}  // namespace lorry::docs
