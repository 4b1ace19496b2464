#pragma once

// Benchmarks: each suite measures its cases on the default device and yields rows of one schema.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/measure.h"
#include "lorry/cli/options.h"
#include "lorry/cli/output.h"
#include "lorry/tensor/tensor.h"

namespace lorry::cli {

/// One measured case. Figures that do not apply stay unset and are left out of the report.
struct BenchRow {
  std::string suite, name;
  Timing time;
  std::string dtype = "f32";
  std::optional<int64_t> bytes = {};  ///< read and written by a call
  std::optional<double> flops = {};   ///< of a call
  std::optional<double> tokens_per_s = {};
  std::optional<double> ratio_to_ceiling = {};  ///< of what this machine was measured to reach
  std::optional<int64_t> peak_bytes = {};       ///< reserved from the device at most, cached blocks included
  std::optional<int64_t> extra_bytes = {};      ///< that a call takes beyond what stands before it
  std::optional<int64_t> launches = {};         ///< of kernels, by a call
  std::optional<int64_t> state_bytes = {};      ///< that an optimizer keeps, masters among them
  std::optional<int64_t> counted_bytes = {};    ///< of extra_bytes, what an optimizer knows of before
  std::string model = {};                       ///< over whose parameters: such rows are drawn side by side
  Device device = default_device();
};

/// True for the cases to run.
using Filter = std::function<bool(const std::string& name)>;

std::vector<BenchRow> bench_foreach(const Filter& wanted);
std::vector<BenchRow> bench_matmul(const Filter& wanted);
std::vector<BenchRow> bench_memory(const Filter& wanted);
std::vector<BenchRow> bench_optim(const Filter& wanted);
/// AdamW by what it keeps, or a report of every choice.
std::vector<BenchRow> bench_kept(const Filter& wanted, const KeptOptions& kept);
void print_report(const std::vector<BenchRow>& rows, const Table& table);
std::vector<BenchRow> bench_overhead(const Filter& wanted);
std::vector<BenchRow> bench_train(const Filter& wanted);

/// The suites by the names that the command knows them by.
struct Suite {
  const char* name;
  std::vector<BenchRow> (*run)(const Filter& wanted);
};
inline constexpr Suite kSuites[] = {{"foreach", bench_foreach}, {"matmul", bench_matmul},     {"memory", bench_memory},
                                    {"optim", bench_optim},     {"overhead", bench_overhead}, {"train", bench_train}};

}  // namespace lorry::cli
