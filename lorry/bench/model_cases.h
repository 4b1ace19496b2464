#pragma once

// Shared by the suites over models: tensors with a model's shapes, and results with all their fields. A call is
// measured as in a loop, without rotating buffers, and other libraries are measured in the same way. Models of a few
// million elements find part of their arrays in an H200's cache of 50 MB and may exceed the rate of a copy.

#include <string>
#include <vector>

#include "lorry/bench/footprint.h"
#include "lorry/bench/shapes.h"
#include "lorry/bench/suites.h"

namespace lorry::bench {

/// A tensor per parameter of the model, on the default device, with all elements equal.
std::vector<Tensor> tensors_of(const ModelShapes& model, double value, DType dtype = kF32);

class ModelCases {
 public:
  ModelCases(const char* suite, const Filter& filter) : suite_(suite), filter_(filter) {}

  /// The models that fit this device, with this many bytes per element. For a CPU only models of up to 32 M elements.
  std::vector<const ModelShapes*> models(int64_t bytes_an_element) const;

  /// Whether the filter selects a case of the model.
  bool wants(const ModelShapes& model, const std::string& label) const { return filter_(model.name + " " + label); }

  /// Measures `call`, which moves this many bytes per element of the model, if the filter selects it.
  template <class F>
  void add(const ModelShapes& model, const std::string& label, int64_t bytes_an_element, F&& call, DType dtype = kF32) {
    if (!wants(model, label)) return;
    Result row{.suite = suite_,
               .name = model.name + " " + label,
               .time = {},
               .dtype = std::string(lorry::name(dtype)),
               .model = model.name};
    row.bytes = bytes_an_element * model.elements();
    call();  // so that one-time work is done
    call();
    count_call(row, call);
    row.time = profile::benchmark(call, options(row.device));
    finish(std::move(row));
  }

  std::vector<Result> rows() const { return rows_; }
  /// The last result, so that a suite can add to it.
  Result& last() { return rows_.back(); }
  /// Adds another kind of result.
  void add_row(Result row) { rows_.push_back(std::move(row)); }
  const char* suite() const { return suite_; }
  static profile::BenchmarkOptions options(Device device) {
    return {.warmup_s = 0.05, .total_s = 0.25, .device = device};
  }

 private:
  /// Adds the ratio to the rate of a copy, which is measured once and is a result itself.
  void finish(Result row);

  const char* suite_;
  const Filter& filter_;
  double copy_rate_ = 0;  ///< bytes per microsecond
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
