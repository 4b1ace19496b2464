#pragma once

// The command line of `lorry profile`.

#include <CLI/CLI.hpp>

#include "lorry/cli/options.h"

namespace lorry::cli {

void add_profile(CLI::App& app, ProfileOptions& o);

/// How many words are the command's own: `profile` takes those before "--"; of others, all.
int words_before_command(int argc, const char* const* argv);

/// Parses the command behind the "--" of `profile`, whose own words are the first `own`. The command takes over the
/// common flags of `profile` that it has not itself; --json is the profile's alone. Returns what parse() does.
std::variant<Arguments, int> parse_profile(Arguments arguments, ProfileOptions profile, int own, int argc,
                                           const char* const* argv);

}  // namespace lorry::cli
