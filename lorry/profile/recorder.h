#pragma once

// The recorder of a session: its hooks into the door, spans, waits and memory, and the logs of its threads. One session
// records at a time in a process.

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lorry/base/events.h"
#include "lorry/profile/device_trace.h"
#include "lorry/profile/session.h"
#include "lorry/profile/thread_log.h"

namespace lorry::profile {

class Recorder {
 public:
  /// Throws ValueError if a session is recorded already.
  explicit Recorder(const SessionOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The recorder of the session of this process; null if there is none.
  static Recorder* active();
  /// The number of the session; each has its own.
  uint64_t number() const { return number_; }

  /// Records this thread from now on. Throws ValueError if it is recorded already, or if there are too many threads.
  void join();
  /// Records this thread no more.
  void leave() noexcept;
  /// Waits for the GPUs, ends all hooks, and returns what was recorded.
  Recording finish();
  /// Ends all hooks.
  void abandon() noexcept;

  const SessionOptions& options() const { return options_; }
  DeviceTrace* trace() const { return trace_.get(); }
  double ticks_per_ns() const { return ticks_per_ns_; }
  void note_outside(const LoggedMemory& record, std::string_view allocator);

 private:
  friend struct RecorderHooks;
  void note_memory_before();
  void measure_ticks();
  /// The first launch after CUPTI was enabled takes 5 ms: it is made before the session's time begins.
  void warm_up_devices();

  const SessionOptions options_;
  const uint64_t number_;
  const int64_t process_;
  bool listening_ = false;
  std::string started_;
  ClockReading first_, last_;
  double ticks_per_ns_ = 1;  ///< about
  int64_t trace_first_ = 0, trace_last_ = 0;
  std::unique_ptr<DeviceTrace> trace_;
  std::string no_gpu_;
  std::vector<std::pair<std::string, int64_t>> memory_before_;
  events::Handler outer_handler_;
  std::mutex mutex_;  ///< guards what follows
  std::vector<std::unique_ptr<ThreadLog>> logs_;
  std::vector<std::pair<LoggedMemory, std::string>> outside_;  ///< memory events of threads that are not recorded
};

}  // namespace lorry::profile
