#include "lorry/profile/session.h"

#include <cstdio>
#include <cstdlib>

#include "lorry/base/error.h"
#include "lorry/profile/chrome_trace.h"
#include "lorry/profile/recorder.h"

namespace lorry::profile {
namespace {

/// Writes what is recorded if the process ends during a session that wants it.
void save_at_exit() {
  Recorder* const recorder = Recorder::active();
  if (recorder == nullptr || recorder->options().save_to.empty()) return;
  try {
    write_chrome_trace(recorder->finish(), recorder->options().save_to);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "profile: the trace could not be saved: %s\n", error.what());
  }
}

}  // namespace

Session::Session(SessionOptions options) {
  if (options.max_spans < 1)
    raise_as<ValueError>("Session", "max_spans is too small; got {}; expected 1 or more", options.max_spans);
  if (!options.save_to.empty()) {
    [[maybe_unused]] static const int registered = std::atexit(save_at_exit);
  }
  recorder_ = std::make_unique<Recorder>(options);
  recorder_->join();
}

Session::~Session() = default;

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

RecordThread::~RecordThread() {
  Recorder* const recorder = Recorder::active();
  if (recorder != nullptr && recorder->number() == session_) recorder->leave();
}

}  // namespace lorry::profile
