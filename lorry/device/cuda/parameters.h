#pragma once

// Which bytes of a kernel's parameters are addresses of device memory, and which are values. A pointer is an address. A
// struct says which of its members are, or hold, addresses:
//
//   struct Rows {
//     float* out;
//     const float* in[2];
//     int64_t n;
//     void addresses(auto& visit) const { visit(out, in); }  // `visit()` where there are none
//   };
//
// One that says nothing does not compile as a parameter, unless its alignment is too small for a pointer.

#include <vector_types.h>

#include <cstdint>
#include <type_traits>

namespace lorry::cuda {

/// What a struct's `addresses` is called with. Members may be pointers, structs that say where theirs are, and arrays
/// of both.
class AddressVisitor {
 public:
  template <class... Members>
  void operator()(const Members&... members) {
    (visit(members), ...);
  }

 protected:
  virtual void found(const void* const* address) = 0;
  ~AddressVisitor() = default;

 private:
  template <class Member>
  void visit(const Member& member) {
    if constexpr (std::is_pointer_v<Member>) {
      found(reinterpret_cast<const void* const*>(&member));
    } else if constexpr (std::is_array_v<Member>) {
      for (const auto& each : member) visit(each);
    } else {
      member.addresses(*this);
    }
  }
};

/// Types that cannot hold an address: scalars, structs aligned too loosely for a pointer, and CUDA's vectors.
template <class T>
inline constexpr bool kHoldsNoAddress = !std::is_pointer_v<T> && (!std::is_class_v<T> || alignof(T) < alignof(void*));
template <>
inline constexpr bool kHoldsNoAddress<uint4> = true;

struct ParameterType {
  uint32_t bytes;
  void (*addresses)(const void* value, AddressVisitor& visitor);  ///< null where there are none
};

template <class T>
concept SaysAddresses = requires(const T& value, AddressVisitor& visitor) {
  value.addresses(visitor);
};

template <class T>
constexpr ParameterType parameter_type() {
  if constexpr (kHoldsNoAddress<T>) {
    return {sizeof(T), nullptr};
  } else if constexpr (std::is_pointer_v<T> || SaysAddresses<T>) {
    return {sizeof(T), [](const void* value, AddressVisitor& visitor) { visitor(*static_cast<const T*>(value)); }};
  } else {
    static_assert(SaysAddresses<T>, "a struct that is a kernel's parameter says which members are addresses");
    return {};
  }
}

}  // namespace lorry::cuda
