#pragma once

#include <concepts>
#include <cstdint>

#include "lorry/layout/dtype.h"

namespace lorry {

/// A number from the host with its kind (bool, whole or floating): what PyTorch calls a wrapped number. Against a
/// tensor it takes part in type promotion by its kind alone.
class Scalar {
 public:
  Scalar() = default;
  template <std::integral I>
  Scalar(I v) : whole_(static_cast<int64_t>(v)), kind_(std::same_as<I, bool> ? Kind::boolean : Kind::whole) {}
  template <std::floating_point F>
  Scalar(F v) : real_(static_cast<double>(v)), kind_(Kind::floating) {}

  bool is_floating() const { return kind_ == Kind::floating; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  /// The dtype a tensor of it has: bool, i64, or the default f32.
  DType dtype() const { return is_floating() ? kF32 : is_boolean() ? kBool : kI64; }

  template <class T>
  T to() const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return static_cast<T>(is_floating() ? to_whole(real_) : whole_);
    } else {
      return is_floating() ? static_cast<T>(real_) : static_cast<T>(whole_);
    }
  }

 private:
  enum class Kind : uint8_t { boolean, whole, floating };
  union {
    int64_t whole_ = 0;
    double real_;
  };
  Kind kind_ = Kind::whole;
};

}  // namespace lorry
