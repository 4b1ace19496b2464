#pragma once

// The page of `lorry lessons --report`: one HTML file without scripts and external resources.

#include <string>
#include <vector>

#include "lorry/bench/lessons.h"

namespace lorry::bench::lessons {

std::string page_of(const std::vector<Lesson>& lessons, const Ceilings& ceilings, const Settings& settings);

}  // namespace lorry::bench::lessons
