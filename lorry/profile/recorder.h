#pragma once

// The recorder of a session: its hooks into the door, spans, waits and memory, and the logs of its threads. One session
// records at a time in a process.
//
// What hooks use belongs to the log of their thread and to what logs share, so that a thread may be inside a hook, or
// recorded still, while the session stops: its next hook finds the session over, and ends the recording of the thread.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lorry/profile/device_trace.h"
#include "lorry/profile/session.h"
#include "lorry/profile/thread_log.h"

namespace lorry::profile {

/// What the logs of a session share.
struct SessionShared {
  SessionOptions options;
  uint64_t number = 0;  ///< of the session; each has its own
  double ticks_per_ns = 1;
  ClockReading first;
  std::unique_ptr<DeviceTrace> trace;
  std::atomic<bool> is_over{false};
};

class Recorder {
 public:
  /// Throws ValueError if a session is recorded already.
  explicit Recorder(const SessionOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The recorder of the session of this process; null if there is none.
  static Recorder* active();
  uint64_t number() const { return shared_->number; }
  const SessionOptions& options() const { return shared_->options; }

  /// Records this thread from now on. Throws ValueError if it is recorded already, or if there are too many threads.
  void join() { join(make_log()); }
  /// Records this thread no more, if it is recorded by the session with this number.
  static void leave(uint64_t session) noexcept;
  /// Waits for the GPUs, ends all hooks, and returns what was recorded.
  Recording finish();

 private:
  friend struct RecorderHooks;
  void begin();
  void note_memory_before();
  /// Begins to trace GPUs, if that is possible, and measures what that costs. The first launch under CUPTI takes 5 ms:
  /// it is made before the session's time begins.
  void begin_trace();
  /// A log of this thread, with memory for its first spans. Takes a millisecond.
  std::shared_ptr<ThreadLog> make_log();
  void join(std::shared_ptr<ThreadLog> log);
  /// Ends all hooks.
  void end_hooks() noexcept;

  const int64_t process_;
  std::shared_ptr<SessionShared> shared_ = std::make_shared<SessionShared>();
  bool has_hooks_ = false;
  std::string started_;
  ClockReading last_;
  int64_t trace_first_ = 0, trace_last_ = 0;
  std::string no_gpu_;
  RecordingCosts costs_;
  std::vector<std::pair<std::string, int64_t>> memory_before_;
  std::mutex mutex_;  ///< guards logs_
  std::vector<std::shared_ptr<ThreadLog>> logs_;
};

}  // namespace lorry::profile
