#include "lorry/base/env.h"

#include <charconv>
#include <cstdlib>

#include "lorry/base/error.h"

namespace lorry::env {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  require<ValueError>(error == std::errc() && end == value->data() + value->size() && number >= low && number <= high,
                      "environment: {} is not usable; got '{}'; expected a whole number from {} to {}", name, *value,
                      low, high);
  return number;
}

}  // namespace lorry::env
