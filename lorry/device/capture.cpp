#include "lorry/device/capture.h"

#include "lorry/base/call_stack.h"
#include "lorry/base/error.h"
#include "lorry/base/modes.h"

namespace lorry::device {

CapturedScope::CapturedScope() {
  if (is_captured())
    raise_as<CaptureError>(running_or("capture"),
                           "this thread's calls are being captured already; expected one capture at a time; capture "
                           "the outer function as a whole");
  detail::t_captured = true;
}

void refuse_capture(const char* where, std::string_view what, std::string_view remedy) {
  const void* frames[64];
  const int count = call_stack(frames);
  const std::string line = describe(calling_line(std::span(frames).first(static_cast<size_t>(count))));
  raise_as<CaptureError>(running_or(where), "{} while a graph is captured{}; {}", what,
                         line.empty() ? std::string() : " (" + line + ")", remedy);
}

}  // namespace lorry::device
