#pragma once

// The log of one recorded thread. The thread appends, and the session reads at its end: what was appended never moves.
// Names, places and lists of operands are stored once each; a span refers to them by number.

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "lorry/ops/dispatch/listener.h"
#include "lorry/profile/chunked.h"
#include "lorry/profile/clock.h"
#include "lorry/profile/recording.h"

namespace lorry::profile {

struct SessionShared;

inline constexpr int kFrames = 16;           ///< return addresses recorded of a call
inline constexpr size_t kMostOperands = 24;  ///< tensors recorded of a call

/// Where a call was made: in which scopes, and by which calls.
struct Place {
  uint32_t path = 0;  ///< number among the thread's paths
  int depth = 0;
  const void* frames[kFrames] = {};

  bool operator==(const Place& other) const {
    return path == other.path && depth == other.depth && std::equal(frames, frames + depth, other.frames);
  }
};

/// A span as it is logged: one cache line. Numbers refer to the thread's log. Spans are logged in the order of their
/// beginnings; the number of a span is its place in that order, from 1.
struct LoggedSpan {
  uint64_t begin = 0, end = 0;  ///< ticks
  int64_t bytes = 0, flops = 0;
  uint32_t parent = 0;  ///< the number of the span around it; 0: none
  uint32_t place = 0;   ///< 0: unknown
  uint32_t name = 0;    ///< of spans other than calls
  uint32_t operands = 0, first_storage = 0;
  uint32_t origin_or_parts = 0;  ///< of a backward: the place of its forward, of any thread; of a replay: its parts
  Op op = kNoOp;
  SpanKind kind{};
  uint8_t dtype = UINT8_MAX;  ///< SpanCost::dtype
  bool failed : 1 = false, in_place : 1 = false, is_module : 1 = false;

  void note_cost(const SpanCost& cost) { bytes = cost.bytes, flops = cost.flops, dtype = cost.dtype; }
};
static_assert(sizeof(LoggedSpan) == 64);

/// A call that a graph repeats.
struct LoggedPart {
  uint32_t name = 0, place = 0;
  int64_t nodes = 1;
  SpanCost cost = {};
};

struct LoggedWait {
  uint64_t begin = 0, end = 0;
  uint32_t span = 0, place = 0, name = 0, text = 0;
};

/// Time between two spans in which the thread called nothing. Only gaps of kLongGap ticks and more are logged.
struct LoggedGap {
  uint64_t begin = 0, end = 0;
  int64_t asleep_ns = 0;  ///< how long it did not run on a processor, having given it up
};

struct LoggedMemory {
  uint64_t time = 0, address = 0;
  int64_t bytes = 0;
  uint32_t span = 0, place = 0, name = 0, allocator = 0;
};

class ThreadLog {
 public:
  /// number: of the thread among the recorded ones; at most kMostThreads.
  ThreadLog(uint32_t number, bool stacks);
  ThreadLog(const ThreadLog&) = delete;
  ThreadLog& operator=(const ThreadLog&) = delete;

  static constexpr uint32_t kMostThreads = 255;
  /// A place of any thread, as one number (detail::t_origin). The lowest bits of the session's number tell places of
  /// other sessions apart, whose tapes may still be there.
  static uint32_t origin(uint64_t session, uint32_t thread, uint32_t place) {
    return place >= kMostPlaces ? 0 : thread << 24 | static_cast<uint32_t>(session & 0xf) << 20 | place;
  }
  static uint32_t thread_of(uint32_t origin) { return origin >> 24; }
  static uint32_t session_of(uint32_t origin) { return origin >> 20 & 0xf; }
  static uint32_t place_of(uint32_t origin) { return origin & (kMostPlaces - 1); }
  static constexpr uint32_t kMostPlaces = 1 << 20;

  // Only on the log's own thread:

  struct Open {
    LoggedSpan* span;
    uint32_t number;
    bool in_trace = false, in_nvtx = false, entered = false;  ///< what its end must undo
  };
  /// Its time begins. Called once, before its first span.
  void begin(uint64_t now);
  /// Begins a span. If there are `most` already, it is counted as lost, and what is returned is logged nowhere. Null if
  /// there was no memory to open it.
  LoggedSpan* open(SpanKind kind, size_t most) noexcept;
  /// The innermost open span; null outside all.
  LoggedSpan* innermost() { return open_.empty() ? nullptr : open_.back().span; }
  /// Its number; 0 outside all spans, or if it is lost.
  uint32_t innermost_number() const { return open_.empty() ? 0 : open_.back().number; }
  /// Only if a span is open.
  Open& innermost_open() { return open_.back(); }
  /// Ends the innermost open span.
  void close(uint64_t end);
  /// Notes what the thread did since the last span ended, if that was long ago. Returns whether it was. Called when a
  /// span begins.
  bool note_gap(uint64_t now) {
    if (now - last_ <= kLongGap) [[likely]]
      return false;
    note_long_gap(now);
    return true;
  }
  /// Counts a record for which there was no memory.
  void lose() noexcept { lost_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t here();                       ///< the number of the place of the calling function's caller
  uint32_t name(std::string_view text);  ///< its number
  void enter(std::string path);          ///< the current path
  void leave();
  /// Describes a span that is not a call: its name and place.
  void describe(LoggedSpan& span, const SpanView& view);
  void note_operands(LoggedSpan& span, const door::CallView& call);
  void wait(const LoggedWait& wait) { count(waits.push(wait)); }
  void memory(const LoggedMemory& record) { count(memory_records.push(record)); }

  const uint32_t number;
  Chunked<LoggedSpan> spans;
  Chunked<LoggedWait> waits;
  Chunked<LoggedMemory> memory_records;
  Chunked<uint64_t> storages;
  Chunked<LoggedGap> gaps;
  ThreadRecord thread;
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  std::shared_ptr<SessionShared> session;
  std::atomic<bool> has_left{false};  ///< the thread is recorded no more

  // What numbers refer to. Read under the mutex by other threads; element 0 of each is empty.
  std::mutex mutex;
  std::deque<std::string> names, paths;
  std::deque<Place> places;
  std::deque<OperandList> operand_lists;
  std::deque<std::vector<LoggedPart>> part_lists;

 private:
  struct OperandKey {
    uint64_t hash;
    size_t first, words;  ///< in key_words_
    uint32_t number;      ///< 0: free
  };
  uint32_t place_of(const std::string& path, const std::vector<const void*>& frames);
  uint32_t number_of(const Place& place);
  /// The entry with this key, or the free one where it belongs.
  OperandKey& find_operands(uint64_t hash, std::span<const uint64_t> key);
  void grow_operand_table();
  void grow_table();

  const bool stacks_;
  void count(bool is_stored) {
    if (!is_stored) lose();
  }
  std::vector<Open> open_;
  LoggedSpan lost_span_;                        ///< stands for all that are lost
  static constexpr uint64_t kLongGap = 50'000;  ///< ticks: about 20 us
  void note_long_gap(uint64_t now);
  uint64_t last_ = 0;  ///< when the last span ended
  /// The moment, the thread's time on a processor, and how often it has given it up.
  struct Counters {
    int64_t ns = 0, cpu_ns = 0, sleeps = 0;
  };
  static Counters counters();
  void note_counters() { counters_ = counters(); }
  Counters counters_;  ///< at the end of the last long gap or long span
  uint32_t path_ = 0;
  std::vector<uint32_t> outer_paths_;
  std::unordered_map<std::string, uint32_t> name_numbers_, path_numbers_;
  std::vector<uint32_t> place_table_;                   ///< open addressing; 0: free
  std::unordered_map<uint64_t, LoggedSpan> described_;  ///< the fields that describe() sets
  std::vector<OperandKey> operand_table_;               ///< open addressing
  std::vector<uint64_t> key_words_;
  std::atomic<int64_t> lost_{0};
};

}  // namespace lorry::profile
