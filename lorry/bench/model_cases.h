#pragma once

// What the suites over models share: tensors of a model's shapes, and a row with everything that such a row says. A
// call is measured as it is made in a loop, without rotating buffers, and the peers do the same: models of a few
// million elements find part of their arrays in an H200's cache of 50 MB and may pass the rate of a copy.

#include <string>
#include <vector>

#include "lorry/bench/footprint.h"
#include "lorry/bench/shapes.h"
#include "lorry/bench/suites.h"

namespace lorry::bench {

/// A tensor a parameter of the model, on the default device, all elements equal.
std::vector<Tensor> tensors_of(const ModelShapes& model, double value, DType dtype = kF32);

class ModelCases {
 public:
  ModelCases(const char* suite, const Filter& filter) : suite_(suite), filter_(filter) {}

  /// The models that this device steps in a moment and has memory for, at that many bytes an element. A CPU takes those
  /// of up to 32 M.
  std::vector<const ModelShapes*> models(int64_t bytes_an_element) const;

  /// Whether a case over the model has to run.
  bool wants(const ModelShapes& model, const std::string& label) const { return filter_(model.name + " " + label); }

  /// Measures `call`, which moves so many bytes for each of the model's elements, if it is wanted.
  template <class F>
  void add(const ModelShapes& model, const std::string& label, int64_t bytes_an_element, F&& call, DType dtype = kF32) {
    if (!wants(model, label)) return;
    Result row{.suite = suite_,
               .name = model.name + " " + label,
               .time = {},
               .dtype = std::string(lorry::name(dtype)),
               .model = model.name};
    row.bytes = bytes_an_element * model.elements();
    call();  // makes what is made once
    call();
    count_call(row, call);
    row.time = profile::benchmark(call, options(row.device));
    finish(std::move(row));
  }

  std::vector<Result> rows() const { return rows_; }
  /// The last one, for what a suite has to add to it.
  Result& last() { return rows_.back(); }
  /// A row of another kind.
  void add_row(Result row) { rows_.push_back(std::move(row)); }
  const char* suite() const { return suite_; }
  static profile::BenchmarkOptions options(Device device) {
    return {.warmup_s = 0.05, .total_s = 0.25, .device = device};
  }

 private:
  /// Sets the row against the rate of a copy, which is measured once and is a row itself.
  void finish(Result row);

  const char* suite_;
  const Filter& filter_;
  double copy_rate_ = 0;  ///< bytes a microsecond
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
