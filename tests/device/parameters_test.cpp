// Which bytes of a kernel's parameters are addresses. No GPU is needed.

#include "lorry/device/cuda/parameters.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace lorry::cuda {
namespace {

struct Operand {
  int64_t stride;
  const float* data;
  void addresses(auto& visit) const { visit(data); }
};
struct Call {
  float* out;
  int64_t n;
  const double* scale;
  Operand in[3];
  const char* text;  ///< the host's, so it is not named
  void addresses(auto& visit) const { visit(out, in, scale); }
};
struct Scaled : Call {
  double by;
};
struct Sizes {
  int64_t rows, columns;
  void addresses(auto& visit) const { visit(); }
};
struct Narrow {
  int32_t rows, columns;
};
struct Silent {
  int64_t rows;
  float* data;
};

static_assert(ListsAddresses<Call> && ListsAddresses<Scaled> && ListsAddresses<Sizes>);
static_assert(!ListsAddresses<Silent> && !kHoldsNoAddress<Silent>, "a struct that may hold a pointer must say");
static_assert(kHoldsNoAddress<Narrow> && kHoldsNoAddress<double> && kHoldsNoAddress<bool> && kHoldsNoAddress<uint4>);
static_assert(!kHoldsNoAddress<float*> && !kHoldsNoAddress<const uint4*>);

using Found = std::vector<std::pair<const void*, size_t>>;  // address, offset

template <class T>
Found found_in(const T& value) {
  struct Visitor final : AddressVisitor {
    explicit Visitor(const void* value) : value(static_cast<const char*>(value)) {}
    void found(const void* const* address) override {
      found_.emplace_back(*address, reinterpret_cast<const char*>(address) - value);
    }
    const char* value;
    Found found_;
  } visitor(&value);
  constexpr ParameterType kType = parameter_type<T>();
  EXPECT_EQ(kType.bytes, sizeof(T));
  if (kType.addresses != nullptr) kType.addresses(&value, visitor);
  return visitor.found_;
}

TEST(Parameters, a_pointer_is_an_address) {
  float x = 0;
  float* const p = &x;
  EXPECT_EQ(found_in(p), (Found{{&x, 0}}));
}

TEST(Parameters, a_struct_says_which_members_hold_addresses_and_nested_ones_are_found_at_their_offsets) {
  float x[5] = {};
  const double scale = 1;
  Scaled call{};
  call.out = x, call.scale = &scale, call.text = "text";
  for (int i = 0; i < 3; ++i) call.in[i].data = x + i;
  Found want{{x, offsetof(Call, out)}};
  for (size_t i = 0; i < 3; ++i)
    want.emplace_back(x + i, offsetof(Call, in) + i * sizeof(Operand) + offsetof(Operand, data));
  want.emplace_back(&scale, offsetof(Call, scale));
  EXPECT_EQ(found_in(call), want);
}

TEST(Parameters, values_have_none) {
  EXPECT_EQ(found_in(Sizes{1, 2}), Found{});
  EXPECT_EQ(found_in(Narrow{1, 2}), Found{});
  EXPECT_EQ(found_in(int64_t{7}), Found{});
}

}  // namespace
}  // namespace lorry::cuda
