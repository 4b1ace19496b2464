#pragma once

// The checks of checks.h in CLI11's form; help shows only the type's name.

#include <CLI/CLI.hpp>

#include "lorry/cli/checks.h"

namespace lorry::cli {

template <class Check>
CLI::Validator validator(Check check) {
  return CLI::Validator([check](const std::string& word) { return check(word); }, "");
}
inline CLI::Validator whole(int64_t least, std::optional<int64_t> most = {}) {
  return validator([=](const std::string& word) { return check_whole(word, least, most); });
}
inline CLI::Validator above_zero() {
  return validator([](const std::string& word) { return check_number(word, /*may_be_zero=*/false); });
}
inline CLI::Validator from_zero() {
  return validator([](const std::string& word) { return check_number(word, /*may_be_zero=*/true); });
}
inline CLI::Validator between(double least, double most) {
  return validator([=](const std::string& word) { return check_between(word, least, most); });
}
inline CLI::Validator one_of(std::vector<std::string> names) {
  return validator([names = std::move(names)](const std::string& word) { return check_one_of(word, names); });
}

}  // namespace lorry::cli
