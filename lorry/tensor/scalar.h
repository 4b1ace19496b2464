#pragma once

// Scalar: a number passed to an operator.

#include <concepts>
#include <cstdint>

#include "lorry/layout/dtype.h"

namespace lorry {

/// A number of the host with its kind: bool, integer or floating. In type promotion with a tensor only its kind counts,
/// as in PyTorch (a wrapped number).
class Scalar {
 public:
  Scalar() = default;
  template <std::integral I>
  Scalar(I v) : whole_(static_cast<int64_t>(v)), kind_(std::same_as<I, bool> ? Kind::boolean : Kind::whole) {}
  template <std::floating_point F>
  Scalar(F v) : real_(static_cast<double>(v)), kind_(Kind::floating) {}

  bool is_floating() const { return kind_ == Kind::floating; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  /// The dtype of a tensor made from it: bool, i64, or the default f32.
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
