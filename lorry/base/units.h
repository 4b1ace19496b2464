#pragma once

// Figures for people: three significant digits, in a suitable unit. Dates for people and programs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lorry {

/// "12.3 k tokens/s" for (12345, " tokens/s"), "1.23 GB" for (1.23e9, "B"), "950 B" for (950, "B").
std::string quantity(double value, std::string_view unit);

/// quantity() of bytes; "-" if unknown.
std::string bytes_text(std::optional<int64_t> bytes);

/// "45.2 ns", "1.23 us", "-14.3 ms" or "2.50 s".
std::string duration_text(double us);

/// The time in UTC, ISO 8601: "2031-04-05T12:00:00Z". Its first ten characters are the date.
std::string utc_now();

}  // namespace lorry
