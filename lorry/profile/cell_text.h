#pragma once

// What the cells of tables show. "-" stands for nothing.

#include <cstdint>
#include <string>

#include "lorry/base/units.h"

namespace lorry::profile {

inline std::string time_cell(double ns) { return ns == 0 ? "-" : duration_text(ns / 1000); }
inline std::string time_cell(int64_t ns) { return time_cell(static_cast<double>(ns)); }
/// A share in per cent.
inline double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
inline std::string count_cell(int64_t count, const char* unit) {
  return count == 0 ? "-" : quantity(static_cast<double>(count), unit);
}

}  // namespace lorry::profile
