#pragma once

// Times, shares and counts as tables and sentences show them.

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "lorry/base/units.h"
#include "lorry/profile/diagnose.h"

namespace lorry::profile {

inline std::string time_text(double ns) { return duration_text(ns / 1000); }
inline std::string time_text(int64_t ns) { return time_text(static_cast<double>(ns)); }
/// The same in a table: "-" stands for nothing.
inline std::string time_cell(double ns) { return ns == 0 ? "-" : time_text(ns); }
inline std::string time_cell(int64_t ns) { return time_cell(static_cast<double>(ns)); }
/// A share in per cent.
inline double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
/// A count in a table: "-" stands for nothing.
inline std::string count_cell(int64_t count, const char* unit) {
  return count == 0 ? "-" : quantity(static_cast<double>(count), unit);
}

/// "; recording took another 14.9 ms, which is not counted"; empty where it took less than 5 % of the program's time.
inline std::string recording_text(const Diagnosis& d) {
  const double whole = d.times.total(), recording = static_cast<double>(d.duration_ns) - whole;
  if (recording <= 0.05 * whole) return {};
  return fmt::format("; recording took another {}, which is not counted", time_text(recording));
}

}  // namespace lorry::profile
