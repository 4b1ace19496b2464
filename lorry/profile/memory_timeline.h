#pragma once

// Who held memory, and when: from the blocks that allocators handed out and took back during a session.

#include <string>
#include <vector>

#include "lorry/profile/recording.h"
#include "lorry/profile/table.h"

namespace lorry::profile {

/// Blocks of one operator, module or line.
struct MemoryHolder {
  std::string name = {};
  int64_t bytes = 0;                             ///< at the peak
  int64_t blocks = 0;                            ///< at the peak
  int64_t allocated_bytes = 0, allocations = 0;  ///< over the whole session
};

/// The memory of one allocator over a session. Times are in nanoseconds since it began.
struct MemoryTimeline {
  std::string allocator = {};  ///< "cpu", "cuda:0", ...
  GroupBy by{};
  int64_t before_bytes = 0;  ///< in use when the session began
  int64_t peak_bytes = 0, peak_ns = 0;
  int64_t end_bytes = 0;
  /// By bytes at the peak, largest first. What was in use before the session is one of them.
  std::vector<MemoryHolder> holders = {};
  /// Memory in use at a moment.
  struct Point {
    int64_t ns, bytes;
    std::vector<int64_t> of_largest = {};  ///< of the first holders, kLargest at most
  };
  static constexpr size_t kLargest = 8;
  std::vector<Point> points = {};  ///< at most about 2,000: of neighbouring moments the one with the most memory

  /// The share of the peak whose holders are known, 0 to 1.
  double explained() const;
};

/// allocator: whose memory; empty: the one with the highest peak. by: any but shape. Throws ValueError for another one,
/// and for an allocator that the recording does not have.
MemoryTimeline memory_timeline(const Recording& recording, GroupBy by = GroupBy::op, const std::string& allocator = {});
/// A table of the holders at the peak.
std::string to_string(const MemoryTimeline& timeline, int64_t row_limit = 20);
/// For programs: holders and points.
std::string to_json(const MemoryTimeline& timeline);
/// The timeline as a stacked area plot.
std::string to_svg(const MemoryTimeline& timeline);

/// What holds more or less memory at the peak of `now` than at that of `was`: largest difference first.
struct MemoryDifference {
  int64_t was_peak = 0, now_peak = 0;
  /// What one holder held at each peak.
  struct Row {
    std::string name = {};
    int64_t was_bytes = 0, now_bytes = 0;
  };
  std::vector<Row> rows = {};
};
/// Compares holders of the same name.
MemoryDifference memory_difference(const MemoryTimeline& was, const MemoryTimeline& now);
/// A table of the differences.
std::string to_string(const MemoryDifference& difference, int64_t row_limit = 20);

}  // namespace lorry::profile
