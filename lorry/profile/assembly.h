#pragma once

// Makes a recording of the logs of threads and the trace of GPUs: numbers become indexes, ticks become nanoseconds, and
// return addresses become source lines.

#include <string>
#include <unordered_map>
#include <vector>

#include "lorry/profile/device_trace.h"
#include "lorry/profile/thread_log.h"

namespace lorry::profile {

/// The beginning and the end of a session on its clocks.
struct SessionClocks {
  ClockReading first, last;
  int64_t trace_first = 0, trace_last = 0;  ///< DeviceTrace::now() at these moments; 0 without a trace
};

/// Kernels start before the work in front of them on their stream ends, and wait for it (device/cuda/launch.h). Moves
/// the beginning of each to the end of that work, so that time is counted once. This also cuts the time that kernels of
/// a graph's branches run side by side, where the trace gives them one stream. Sorts by the beginnings.
void count_time_once(std::vector<TracedWork>& work);

class Assembly {
 public:
  explicit Assembly(const SessionClocks& clocks);

  void add(ThreadLog& log);
  /// A memory event of a thread that was not recorded.
  void add_outside(const LoggedMemory& record, const std::string& allocator);
  void add_memory_before(const std::string& allocator, int64_t bytes);
  void add(Traced traced);
  void add_failure(const std::string& why) { made_.incomplete.push_back(why); }
  Recording finish();

 private:
  /// Texts that are stored once each.
  struct Texts {
    std::vector<std::string>& list;
    std::unordered_map<std::string, int32_t> numbers = {};
    int32_t operator()(const std::string& text);
  };
  /// What the numbers of one thread's log became.
  struct Numbers {
    std::vector<int32_t> names, paths, operand_lists;
    std::vector<std::pair<int32_t, int32_t>> places;  ///< path and line
    int32_t first_span = 0, spans = 0;                ///< before they are sorted
    int32_t first_storage = 0, first_parts = 0;
  };
  /// Finds the calls of kernels whose launch CUPTI did not see.
  void find_launches_by_order(size_t first_record);
  /// Finds for the work of replayed graphs which part of the replay it is.
  void find_parts(const std::vector<const TracedWork*>& work, size_t first_record);
  /// The index of a span by its number; kNone for 0.
  static int32_t span_of(const Numbers& numbers, uint32_t number) {
    const bool is_there = number > 0 && static_cast<int32_t>(number) <= numbers.spans;
    return is_there ? numbers.first_span + static_cast<int32_t>(number) - 1 : kNone;
  }
  void add_spans(const ThreadLog& log, Numbers& numbers, int32_t thread);
  int32_t line_of(const Place& place);
  bool is_in_backward(int32_t span) const;
  void sort_spans();
  void sort_calls();
  void inherit_places();
  void add_work(const TracedWork& traced, const std::vector<int32_t>& names,
                const std::unordered_map<uint32_t, int32_t>& spans, const std::unordered_map<uint32_t, int32_t>& calls);
  int64_t trace_time(int64_t ns) const;

  const SessionClocks clocks_;
  const TickScale scale_;
  Recording made_;
  Texts names_{made_.names}, paths_{made_.paths}, lines_{made_.lines};
  std::vector<Numbers> numbers_;   ///< by thread
  std::vector<uint32_t> origins_;  ///< by span
  std::unordered_map<std::string, int32_t> known_stacks_;
};

/// What recording a span took, about, in nanoseconds, estimated from the recording. Most of it lies between two spans,
/// so it is what lies between spans that follow each other closely, as in a loop over small calls.
double span_cost_ns(const Recording& recording);

}  // namespace lorry::profile
