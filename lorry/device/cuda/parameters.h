#pragma once

// Tells addresses from values in a kernel's parameters. A pointer is an address. A struct lists those of its members
// that are addresses or contain some:
//
//   struct Rows {
//     float* out;
//     const float* in[2];
//     int64_t n;
//     void addresses(auto& visit) const { visit(out, in); }  // visit() if there are none
//   };
//
// A struct without this function does not compile as a parameter, unless its alignment is too small for a pointer.

#include <vector_types.h>

#include <cstdint>
#include <type_traits>

namespace lorry::cuda {

/// The argument of a struct's `addresses`. Members passed to it may be pointers, structs with such a function, and
/// arrays of these.
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

/// Types that cannot hold an address: scalars, structs whose alignment is too small for a pointer, and CUDA's vectors.
template <class T>
inline constexpr bool kHoldsNoAddress = !std::is_pointer_v<T> && (!std::is_class_v<T> || alignof(T) < alignof(void*));
template <>
inline constexpr bool kHoldsNoAddress<uint4> = true;

struct ParameterType {
  uint32_t bytes;
  void (*addresses)(const void* value, AddressVisitor& visitor);  ///< null if the type holds none
};

template <class T>
concept ListsAddresses = requires(const T& value, AddressVisitor& visitor) {
  value.addresses(visitor);
};

template <class T>
constexpr ParameterType parameter_type() {
  if constexpr (kHoldsNoAddress<T>) {
    return {sizeof(T), nullptr};
  } else if constexpr (std::is_pointer_v<T> || ListsAddresses<T>) {
    return {sizeof(T), [](const void* value, AddressVisitor& visitor) { visitor(*static_cast<const T*>(value)); }};
  } else {
    static_assert(ListsAddresses<T>, "a struct passed to a kernel must list its addresses: see parameters.h");
    return {};
  }
}

}  // namespace lorry::cuda
