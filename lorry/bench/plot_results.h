#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lorry/bench/result.h"

namespace lorry::bench {

/// An SVG of medians. Cases measured over several models are drawn as bars next to each other, with the time that their
/// bytes take at a copy's rate. If there are cases at several batches ("..., batch 8"), they alone are drawn, as curves
/// over the batch. Else each result is a bar. None if gnuplot is missing or fails.
std::optional<std::string> plot_results(const std::vector<Result>& results);

}  // namespace lorry::bench
