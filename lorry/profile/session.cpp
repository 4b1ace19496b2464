#include "lorry/profile/session.h"

#include <cstdio>
#include <cstdlib>

#include "lorry/base/error.h"
#include "lorry/profile/chrome_trace.h"
#include "lorry/profile/recorder.h"

namespace lorry::profile {
namespace {

/// Writes what is recorded, if the session wants that.
void save(Recorder& recorder) {
  if (recorder.options().save_to.empty()) return;
  try {
    const std::string path = recorder.options().save_to;
    write_chrome_trace(recorder.finish(), path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "profile: the trace could not be saved: %s\n", error.what());
  }
}

/// For sessions that exit() does not destroy.
void save_at_exit() {
  if (Recorder* const recorder = Recorder::active()) save(*recorder);
}

}  // namespace

Session::Session(SessionOptions options) {
  constexpr int64_t kMost = int64_t{1} << 28;
  if (options.max_spans < 1 || options.max_spans > kMost)
    raise_as<ValueError>("Session", "max_spans is {}; expected 1 to {}", options.max_spans, kMost);
  if (!options.save_to.empty()) {
    [[maybe_unused]] static const int registered = std::atexit(save_at_exit);
  }
  recorder_ = std::make_unique<Recorder>(options);
}

Session::~Session() {
  if (recorder_ != nullptr && recorder_.get() == Recorder::active()) save(*recorder_);
}

bool Session::any_is_recording() { return Recorder::active() != nullptr; }

Recording Session::stop() {
  if (recorder_ == nullptr) raise_as<ValueError>("Session", "it has ended already; make a new one");
  Recording recording = recorder_->finish();
  recorder_.reset();
  return recording;
}

RecordThread::RecordThread(Session& session) {
  if (session.recorder_ == nullptr) raise_as<ValueError>("RecordThread", "the session has ended; make a new one");
  session.recorder_->join();
  session_ = session.recorder_->number();
}

RecordThread::~RecordThread() { Recorder::leave(session_); }

}  // namespace lorry::profile
