#pragma once

// Cases that are measured by the bytes they move, compared with a copy of as many.

#include "lorry/bench/suites.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

class MemoryCases {
 public:
  MemoryCases(const char* suite, const Filter& filter) : suite_(suite), filter_(filter) {}

  /// A copy between host and device, which is bound by the link and not by the device's memory.
  template <class F>
  void add_transfer(const char* name, DType dtype, int64_t bytes, F&& call) {
    if (filter_(name)) rows_.push_back(row(name, dtype, bytes, call));
  }
  /// A call that moves `bytes`.
  template <class F>
  void add(const char* name, DType dtype, int64_t bytes, F&& call) {
    if (!filter_(name)) return;
    rows_.push_back(row(name, dtype, bytes, call));
    rows_.back().ratio_to_ceiling = static_cast<double>(bytes) / rows_.back().time.median_us / copies_.of(bytes);
  }
  /// A call that moves few bytes: call(input) over a rotation of inputs made by make().
  template <class Make, class F>
  void add_rotating(const char* name, DType dtype, int64_t bytes, Make&& make, F&& call) {
    if (!filter_(name)) return;
    profile::Rotation inputs(make, bytes);
    add(name, dtype, bytes, [&] { call(inputs.next()); });
  }
  std::vector<Result> rows() const { return rows_; }

 private:
  template <class F>
  Result row(const char* name, DType dtype, int64_t bytes, F&& call) const {
    return {.suite = suite_,
            .name = name,
            .time = profile::benchmark(call, {.device = default_device()}),
            .dtype = std::string(lorry::name(dtype)),
            .bytes = bytes};
  }

  const char* suite_;
  const Filter& filter_;
  profile::CopyRate copies_{default_device()};
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
