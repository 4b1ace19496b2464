#pragma once

// Options of `lorry bench replay` and `lorry bench generate`.

#include <vector>

#include "lorry/bench/suites.h"
#include "lorry/replay/buckets.h"

namespace lorry::bench {

struct ReplayOptions {
  std::vector<replay::Execution> executions = {};  ///< to measure; empty: all
  // With any of these, each batch goes through a BucketSet, which copies it and pads it.
  std::vector<int64_t> sizes = {};  ///< of its buckets; empty: BucketSet's own, up to the largest batch
  bool padding = true;
  replay::Policy policy = replay::Policy::fixed;

  bool buckets() const { return !sizes.empty() || !padding || policy != replay::Policy::fixed; }
  bool given() const { return !executions.empty() || buckets(); }
};

/// As generate_suite, with these executions; empty: all.
std::vector<Result> generate_suite(const Filter& filter, const std::vector<replay::Execution>& executions);
/// As replay_suite. Throws ValueError for sizes that repeat.
std::vector<Result> replay_suite(const Filter& filter, const ReplayOptions& options);

}  // namespace lorry::bench
