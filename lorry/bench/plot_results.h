#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lorry/bench/result.h"

namespace lorry::bench {

/// An SVG of medians. Cases measured over several models are drawn as bars next to each other, with the time that their
/// bytes take at a copy's rate; other results as one bar each. None if gnuplot is missing or fails.
std::optional<std::string> plot_results(const std::vector<Result>& results);

}  // namespace lorry::bench
