#pragma once

// Environment settings. Each is read and validated where it is used: a misspelt value is an error, not the default.

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::env {

/// The value of a variable; none if it is unset or empty.
std::optional<std::string> text(const char* name);

/// The value as a whole number; none if it is unset or empty. Throws ValueError that names the variable unless the
/// value is a number in [low, high].
std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);

}  // namespace lorry::env
