#include "lorry/base/units.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <ctime>
#include <iterator>

namespace lorry {
namespace {

/// `value` with three significant digits, but with all integer digits.
std::string three_digits(double value) {
  const double size = std::fabs(value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

constexpr double kNextUnit = 999.5;  // above this, three digits would show 1000

}  // namespace

std::string quantity(double value, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; std::fabs(value) >= kNextUnit && prefix + 1 < std::size(kPrefixes); ++prefix) value /= 1000;
  if (prefix == 0 && unit.starts_with(' ')) unit.remove_prefix(1);
  const bool whole = prefix == 0 && value == std::floor(value);  // counts have no decimals
  return fmt::format("{} {}{}", whole ? fmt::format("{:.0f}", value) : three_digits(value), kPrefixes[prefix], unit);
}

std::string bytes_text(std::optional<int64_t> bytes) {
  return bytes ? quantity(static_cast<double>(*bytes), "B") : "-";
}

std::string utc_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[sizeof "2000-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%FT%TZ", &utc);
  return text;
}

std::string duration_text(double us) {
  constexpr std::string_view kUnits[] = {"ns", "us", "ms", "s"};
  double value = 1000 * us;
  size_t unit = 0;
  for (; std::fabs(value) >= kNextUnit && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{} {}", three_digits(value), kUnits[unit]);
}

}  // namespace lorry
