#pragma once

// What the words of a command line must be. Each check gives an empty text for a word that passes, else what is wrong
// with it: what was given, what is expected and, where a name is close to the word, what may have been meant.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::cli {

/// The name that `word` most likely stands for: the one with the fewest letters added, left out, replaced or swapped
/// with the next one. Nothing when more than a third of the letters differ.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& names);

/// "a, b or c".
std::string listed(const std::vector<std::string>& names);

std::string check_one_of(std::string_view word, const std::vector<std::string>& names);

/// A whole number of at least `least` and, where it is given, at most `most`.
std::string check_whole(std::string_view word, int64_t least, std::optional<int64_t> most = {});

/// A whole number of 64 bits without a sign; nothing for any other word.
std::optional<uint64_t> parse_seed(std::string_view word);
std::string check_seed(std::string_view word);

/// A finite number of at least 0, or above 0.
std::string check_number(std::string_view word, bool may_be_zero);

/// A number from `least` to `most`.
std::string check_between(std::string_view word, double least, double most);

}  // namespace lorry::cli
