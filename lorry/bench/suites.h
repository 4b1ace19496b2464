#pragma once

// The suites of `lorry bench`. Each measures its cases on the default device with profile::benchmark and gives results
// of one schema (result.h).

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lorry/bench/result.h"

namespace lorry::bench {

/// True for the cases to run.
using Filter = std::function<bool(const std::string& name)>;

std::vector<Result> compile_suite(const Filter& filter);
std::vector<Result> foreach_suite(const Filter& filter);
std::vector<Result> matmul_suite(const Filter& filter);
std::vector<Result> matmul_ceiling_suite(const Filter& filter);
std::vector<Result> memory_suite(const Filter& filter);
std::vector<Result> operators_suite(const Filter& filter);
std::vector<Result> optim_suite(const Filter& filter);
std::vector<Result> overhead_suite(const Filter& filter);

struct Suite {
  const char* name;
  std::vector<Result> (*run)(const Filter& filter);  ///< null where this build has no code for it
};

/// The suites of this room, by name. The command adds `train`, whose steps are its own.
std::span<const Suite> suites();

}  // namespace lorry::bench
