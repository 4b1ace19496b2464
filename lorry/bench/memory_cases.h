#pragma once

// Cases that are measured by the bytes they move, compared with a copy of as many.

#include <algorithm>
#include <string>
#include <vector>

#include "lorry/bench/suites.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

class MemoryCases {
 public:
  MemoryCases(const char* suite, const Filter& filter) : suite_(suite), filter_(filter) {}

  /// Whether any of these cases is to be measured: ask before making their tensors. Names all of them to the filter.
  bool has_any(const std::vector<std::string>& names) const { return std::ranges::count_if(names, filter_) > 0; }
  /// A copy that is not bound by the device's memory, such as one between host and device. ceiling: bytes per second
  /// of what bounds it; 0: it is not compared.
  template <class F>
  void add_transfer(const std::string& name, DType dtype, int64_t bytes, double ceiling, F&& call) {
    if (!filter_(name)) return;
    rows_.push_back(row(name, dtype, bytes, call, 0.5));
    if (ceiling > 0) rows_.back().ratio_to_ceiling = 1e9 * rows_.back().gb_per_s() / ceiling;
  }
  /// A call that moves `bytes`.
  template <class F>
  void add(const std::string& name, DType dtype, int64_t bytes, F&& call) {
    if (!filter_(name)) return;
    rows_.push_back(row(name, dtype, bytes, call));
    rows_.back().ratio_to_ceiling = static_cast<double>(bytes) / rows_.back().time.median_us / copies_.of(bytes);
  }
  /// A call that moves few bytes: call(input) over a rotation of inputs made by make().
  template <class Make, class F>
  void add_rotating(const std::string& name, DType dtype, int64_t bytes, Make&& make, F&& call) {
    if (!filter_(name)) return;
    profile::Rotation inputs(make, bytes);
    add(name, dtype, bytes, [&] { call(inputs.next()); });
  }
  std::vector<Result> rows() const { return rows_; }

 private:
  template <class F>
  Result row(const std::string& name, DType dtype, int64_t bytes, F&& call, double total_s = 1) const {
    return {.suite = suite_,
            .name = name,
            .time = profile::benchmark(call, {.total_s = total_s, .device = default_device()}),
            .dtype = std::string(lorry::name(dtype)),
            .bytes = bytes};
  }

  const char* suite_;
  const Filter& filter_;
  profile::CopyRate copies_{default_device()};
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
