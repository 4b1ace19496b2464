#pragma once

#include <cstdint>

#include "lorry/bench/suites.h"

namespace lorry::bench {

/// Predictions beside what the suite parallel measures.
struct ParallelOptions {
  int64_t simulate = 0;          ///< up to this many ranks; 0: none
  int64_t per_machine = 8;       ///< ranks
  double network_gb_per_s = 50;  ///< of a rank, each way
  double network_us = 10;        ///< of a message between machines
};

std::vector<Result> parallel_suite(const Filter& filter, const ParallelOptions& options);

}  // namespace lorry::bench
