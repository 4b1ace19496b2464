#pragma once

// The suite `train` of `lorry bench`: training steps as `lorry train` takes them.

#include "lorry/bench/suites.h"

namespace lorry::cli {

std::vector<bench::Result> train_suite(const bench::Filter& filter);

/// All suites of `lorry bench`, by name.
std::vector<bench::Suite> bench_suites();

}  // namespace lorry::cli
