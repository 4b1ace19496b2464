#pragma once

// The code that lessons show is the code that they run: the build embeds the sources of the lessons, and a shown text
// is cut out of them. `run.way("copied first", {}, [&] { ... })` shows the body of that lambda, found by its name.

#include <string>
#include <string_view>

namespace lorry::bench::lessons {

/// The text of a lesson's source in lorry/bench/lessons/, such as "batching.cpp". Throws ValueError for a file that is
/// not embedded.
std::string_view source_of(std::string_view file);

/// The bodies of the lambdas that follow the string literal "key" in the same call, without their indentation. Of two
/// lambdas the first is the set-up; a comment says so. Throws ValueError unless the literal occurs exactly once with a
/// lambda after it.
std::string code_of(std::string_view source, std::string_view key);

/// The paragraph that follows the line comment "// given: key", up to a blank line or a line of less indentation.
/// Empty if there is none.
std::string given_of(std::string_view source, std::string_view key);

/// A whole function, from the text `head`, which occurs once, to its closing brace. Throws ValueError if it is missing.
std::string function_of(std::string_view source, std::string_view head);

}  // namespace lorry::bench::lessons
