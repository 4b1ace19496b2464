#pragma once

// Environment settings, read where they are used and validated there: a misspelt value is an error, not a default.

#include <cstdint>
#include <optional>
#include <string>

namespace lorry::env {

/// The value of a variable, or nothing when it is unset or empty.
std::optional<std::string> text(const char* name);

/// A whole number in [low, high]. Throws ValueError naming the variable when it is set to anything else.
std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);

}  // namespace lorry::env
