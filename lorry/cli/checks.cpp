#include "lorry/cli/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lorry::cli {
namespace {

/// Optimal string alignment: Levenshtein's distance, with a swap of neighbours as one change.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> changes(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) changes[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) changes[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t& least = changes[i][j];
      least = std::min({changes[i - 1][j] + 1, changes[i][j - 1] + 1, changes[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least = std::min(least, changes[i - 2][j - 2] + 1);
    }
  return changes[a.size()][b.size()];
}

template <class T>
std::optional<T> parse_number(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& names) {
  std::optional<std::string> best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t changes = distance(word, name);
    if (changes >= least) continue;
    least = changes;
    best = name;
  }
  return best;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

std::string check_one_of(std::string_view word, const std::vector<std::string>& names) {
  if (std::ranges::find(names, word) != names.end()) return {};
  const std::optional<std::string> meant = nearest(word, names);
  return fmt::format("got '{}'; expected {}{}", word, listed(names),
                     meant ? fmt::format("; did you mean {}?", *meant) : "");
}

std::string check_whole(std::string_view word, int64_t least, std::optional<int64_t> most) {
  const std::optional<int64_t> value = parse_number<int64_t>(word);
  if (value && *value >= least && (!most || *value <= *most)) return {};
  return most ? fmt::format("got '{}'; expected a whole number from {} to {}", word, least, *most)
              : fmt::format("got '{}'; expected a whole number of at least {}", word, least);
}

std::optional<uint64_t> parse_seed(std::string_view word) { return parse_number<uint64_t>(word); }

std::string check_seed(std::string_view word) {
  if (parse_seed(word)) return {};
  return fmt::format("got '{}'; expected a whole number from 0 to 2^64 - 1", word);
}

std::string check_number(std::string_view word, bool may_be_zero) {
  const std::optional<double> value = parse_number<double>(word);
  if (value && std::isfinite(*value) && (*value > 0 || (may_be_zero && *value == 0))) return {};
  return fmt::format("got '{}'; expected a number {}", word, may_be_zero ? "of at least 0" : "above 0");
}

std::string check_between(std::string_view word, double least, double most) {
  const std::optional<double> value = parse_number<double>(word);
  if (value && *value >= least && *value <= most) return {};
  return fmt::format("got '{}'; expected a number from {} to {}", word, least, most);
}

}  // namespace lorry::cli
