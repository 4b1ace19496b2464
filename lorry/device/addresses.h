#pragma once

// Tells addresses from values in the arguments of kernels. A pointer is an address. A struct lists those of its members
// that are addresses or contain some:
//
//   struct Rows {
//     float* out;
//     const float* in[2];
//     int64_t n;
//     void addresses(auto& visit) const { visit(out, in); }  // visit() if there are none
//   };

#include <type_traits>

namespace lorry {

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

template <class T>
concept ListsAddresses = requires(const T& value, AddressVisitor& visitor) {
  value.addresses(visitor);
};

}  // namespace lorry
