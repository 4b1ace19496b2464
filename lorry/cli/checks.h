#pragma once

// Checks for the words of a command line. Each returns an empty text for a valid word; otherwise what is wrong: the
// word, what is expected and, if a name is similar to the word, a suggestion.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::cli {

/// The name closest to `word`: with the fewest letters inserted, removed, replaced or swapped with the next one. None
/// if more than a third of the letters differ.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& names);

/// "a, b or c".
std::string listed(const std::vector<std::string>& names);

std::string check_one_of(std::string_view word, const std::vector<std::string>& names);

/// An integer of at least `least` and, if given, at most `most`.
std::string check_whole(std::string_view word, int64_t least, std::optional<int64_t> most = {});

/// An unsigned 64-bit integer; none for any other word.
std::optional<uint64_t> parse_seed(std::string_view word);
std::string check_seed(std::string_view word);

/// A finite number of at least 0, or above 0.
std::string check_number(std::string_view word, bool may_be_zero);

/// A number from `least` to `most`.
std::string check_between(std::string_view word, double least, double most);

}  // namespace lorry::cli
