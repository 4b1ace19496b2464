#pragma once

// Rotary positions: a pair of coordinates as a point in the plane, turned by an angle.

#include "lorry/base/macros.h"

namespace lorry::formula {

/// Turns the point (x, y) by the angle whose cosine and sine are given; with the sine negated, back.
/// Su et al. 2021, eq. 34.
struct Rotary {
  template <class V>
  LORRY_INLINE void operator()(V& x, V& y, V cos, V sin) const {
    const V turned = x * cos - y * sin;
    y = y * cos + x * sin;
    x = turned;
  }
};

}  // namespace lorry::formula
