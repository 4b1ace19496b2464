#pragma once

// How a BucketSet (buckets.h) runs: which batch sizes it has, how each of them runs, when graphs are captured, and how
// much memory they may take.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lorry/compile/compile.h"
#include "lorry/replay/graph.h"

namespace lorry::replay {

/// How the function runs at one size.
enum class Execution : uint8_t {
  eager,     ///< operator by operator
  graph,     ///< a replay of its operators
  compiled,  ///< its recording, with operators fused (compile/compile.h)
  both,      ///< a replay of its recording
};
inline constexpr std::array kExecutions = {Execution::eager, Execution::graph, Execution::compiled, Execution::both};
/// "eager", "graph", "compiled", "both".
const char* name(Execution execution);

/// Who chooses the execution of each size.
enum class Policy : uint8_t {
  fixed,       ///< the options
  latency,     ///< the least time of a call that is waited for
  throughput,  ///< the least time a call if several are enqueued before the wait. On the CPU the same as latency
};

/// When a size is captured, compiled and measured.
enum class Capture : uint8_t {
  at_start,      ///< all in prepare() or the first call, the largest first
  at_first_use,  ///< each in the first call that it serves
  /// All on a thread, the largest first. While a size is not ready, its calls run the function on their own arguments.
  in_background,
};

/// With padding: 1, 2, 4, 8, then every 8 up to `largest`. Without: 1 to 32, 64, 96, 128, 160, as far as they are not
/// larger. Throws ValueError for a largest size below 1.
std::vector<int64_t> default_sizes(bool padding = true, int64_t largest = 160);

struct BucketOptions {
  /// The sizes of the buckets, in any order. Empty: default_sizes(padding, largest).
  std::vector<int64_t> sizes = {};
  /// Whether batches of other sizes are padded up. Without padding they run as the function is.
  bool padding = true;
  int64_t largest = 160;  ///< of the default sizes
  /// The dimension of each tensor argument that counts the batch; -1: none, the argument must keep its shape. Missing
  /// entries are 0. All arguments with a batch have the same.
  std::vector<int> dims = {};
  /// The same for results.
  std::vector<int> result_dims = {};
  /// What fills the rows of padding, for each tensor argument. Missing entries are 0.
  std::vector<double> pad_values = {};

  Execution execution = Execution::graph;
  /// Buckets up to this size are compiled too: `both` instead of `graph`, `compiled` instead of `eager`.
  int64_t compiled_up_to = 0;
  /// Of single sizes, instead of the two options above.
  std::map<int64_t, Execution> executions = {};
  /// latency and throughput: each size is measured in all four executions, and the fastest is kept. Those that cannot
  /// be captured are left out. This takes some milliseconds for each execution, or eight calls where they are slower.
  /// It measures what the function does in trials, see below.
  Policy policy = Policy::fixed;
  Capture capture = Capture::at_start;
  /// The maximum memory of graphs and what they compute in, in bytes; 0: no limit. Where it is not enough for all, the
  /// buckets that are used most have a graph. The others run eagerly, or compiled if they were to run as both.
  int64_t memory_budget = 0;

  /// Called with the size before the function may run at a size, in whatever way, and with 0 afterwards, after errors
  /// too. For models that run in another form at some sizes. It is no part of graphs and recordings.
  std::function<void(int64_t size)> choose_forward = nullptr;
  /// Called with true before runs of the function whose results nobody gets (warm-up, recordings, measurements,
  /// captures), and with false afterwards, after errors too. For functions that write memory of their own: it makes
  /// these runs harmless.
  std::function<void(bool begins)> trial = nullptr;
  /// Of the compiled buckets. They always wait for their kernels (`wait`), and sizes are recorded each (`dynamic`).
  CompileOptions compile = {};
  int warm_up = 2;                                          ///< CaptureOptions::warm_up
  std::vector<std::pair<std::string, Tensor>> follow = {};  ///< CaptureOptions::follow
  std::optional<Device> device = {};                        ///< by default the default device
  /// Fills the rows of padding with NaN where the argument is floating, runs the function itself too, and throws
  /// ValueError if the results differ in a bit. For finding functions in which rows of a batch influence each other.
  /// Not for functions with a size argument, whose rows of padding are not the set's.
  bool verify = false;
};

/// Figures of one bucket.
struct BucketStats {
  int64_t size = 0;
  Execution execution = Execution::graph;  ///< of the options, or chosen by the policy
  bool captured = false;                   ///< whether its graph exists
  int64_t hits = 0;                        ///< batches that it served
  int64_t padded_rows = 0;                 ///< in all of them
  /// Of its graph, and by how much the pool that all share has grown for it: the largest bucket takes most.
  int64_t bytes = 0;
  /// Microseconds a call, by Execution, as the policy measured them; 0: not measured.
  std::array<double, 4> measured_us = {};
  GraphStats graph = {};  ///< zeros without a graph
};

/// The share of rows of padding among all rows that were computed, 0 to 1.
double padding_waste(const std::vector<BucketStats>& buckets);

namespace detail {
/// Throws ValueError for options that contradict each other or are out of range.
void check(const BucketOptions& options);
/// Throws ValueError for options that functions with a size argument cannot have.
void check_size_argument(const BucketOptions& options);
/// Ascending. Of valid options.
std::vector<int64_t> sizes_of(const BucketOptions& options);
/// The execution of a size by the options.
Execution execution_of(const BucketOptions& options, int64_t size);

inline bool has_graph(Execution x) { return x == Execution::graph || x == Execution::both; }
inline bool is_compiled(Execution x) { return x == Execution::compiled || x == Execution::both; }
}  // namespace detail

}  // namespace lorry::replay
