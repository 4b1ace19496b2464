#pragma once

// The suites of `lorry bench`. Each measures its cases on the default device with profile::benchmark and returns
// results of one schema (result.h).

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lorry/bench/result.h"

namespace lorry::bench {

/// Returns whether to run a case.
using Filter = std::function<bool(const std::string& name)>;

std::vector<Result> attention_suite(const Filter& filter);
std::vector<Result> compile_suite(const Filter& filter);
std::vector<Result> foreach_suite(const Filter& filter);
std::vector<Result> generate_suite(const Filter& filter);
std::vector<Result> lossy_suite(const Filter& filter);
std::vector<Result> matmul_suite(const Filter& filter);
std::vector<Result> matmul_ceiling_suite(const Filter& filter);
std::vector<Result> memory_suite(const Filter& filter);
std::vector<Result> operators_suite(const Filter& filter);
std::vector<Result> optim_suite(const Filter& filter);
std::vector<Result> overhead_suite(const Filter& filter);
std::vector<Result> parallel_suite(const Filter& filter);
std::vector<Result> profile_suite(const Filter& filter);
std::vector<Result> replay_suite(const Filter& filter);
std::vector<Result> transfers_suite(const Filter& filter);

struct Suite {
  const char* name;
  std::vector<Result> (*run)(const Filter& filter);  ///< null if this build does not support it
};

/// The suites of this room, by name. The command adds `train`, which uses the command's own steps.
std::span<const Suite> suites();

}  // namespace lorry::bench
