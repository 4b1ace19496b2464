#pragma once

// A session records what a program does: each operator call with its module, source line, bytes and operations; what
// GPUs did for it; waits; memory.
//
//   profile::Session session;
//   train_step();
//   const profile::Recording recording = session.stop();
//   fmt::print("{}", profile::to_string(profile::table(recording)));
//   profile::write_chrome_trace(recording, "step.json");   // opens in Perfetto
//
// A session records the thread that made it, and others while they hold a RecordThread. While no session records, a
// call costs nothing more. Source lines need a program that is compiled with -g1 and -fno-omit-frame-pointer; without
// them a call has the name of its function.

#include <cstdint>
#include <memory>
#include <string>

#include "lorry/profile/recording.h"

namespace lorry::profile {

/// What a session records.
struct SessionOptions {
  bool lines = true;  ///< from where each call was made
  bool operands =
      true;            ///< sizes, dtypes and memory of each call's tensors: tables by shape, and diagnose(), need them
  bool memory = true;  ///< each block that allocators hand out and take back
  bool gpu = true;     ///< what GPUs did, where CUPTI can be opened
  bool nvtx = false;   ///< also announces spans to NVTX, for another profiler that watches the process
  int64_t max_spans = int64_t{16} << 20;  ///< of a thread; later ones are only counted
  /// If the session ends without stop(), by its destructor or with the process, the trace is written there. Empty: it
  /// is lost.
  std::string save_to = {};
};

/// Records this thread until stop(), and others that take part (RecordThread).
class Session {
 public:
  /// Begins to record. Where GPUs are traced, it first launches empty kernels on their current streams and reads single
  /// values, to measure what recording these takes: some 20 ms. Throws ValueError if a session is recording already in
  /// this process, on whichever thread.
  explicit Session(SessionOptions options = {});
  /// Ends it; what was recorded is lost unless stop() was called, or SessionOptions::save_to is set.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Waits for the GPUs, ends the session, and returns what was recorded. Throws ValueError if it has ended already. In
  /// a child of fork() the recording is empty and says so.
  Recording stop();
  bool is_recording() const { return recorder_ != nullptr; }
  /// Whether any session records in this process.
  static bool any_is_recording();

 private:
  friend class RecordThread;
  std::unique_ptr<class Recorder> recorder_;
};

/// Records this thread too, for a scope. End it before the session's stop(): the recording of a session whose threads
/// have not left is incomplete.
class [[nodiscard]] RecordThread {
 public:
  /// Throws ValueError if the session has ended, or if the thread is recorded already.
  explicit RecordThread(Session& session);
  ~RecordThread();
  RecordThread(const RecordThread&) = delete;
  RecordThread& operator=(const RecordThread&) = delete;

 private:
  uint64_t session_;
};

}  // namespace lorry::profile
