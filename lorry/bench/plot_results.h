#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lorry/bench/result.h"

namespace lorry::bench {

/// An SVG of medians: results over models as bars side by side, of what was measured over several of them, with the
/// time that their bytes take at a copy's rate; other results as a bar each. Nothing when gnuplot is missing or fails.
std::optional<std::string> plot_results(const std::vector<Result>& results);

}  // namespace lorry::bench
