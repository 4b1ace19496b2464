#include "lorry/base/waits.h"

#include "lorry/base/call_stack.h"

namespace lorry::waits {
namespace {

struct Row {
  Wait wait;
  const char *name, *purpose, *remedy;
  bool may_be_forbidden;
};
constexpr Row kRows[] = {
    {Wait::none, "none", "for nothing", "nothing is to be done", false},
    {Wait::asked, "asked", "because the program asks it to", "wait for the event of the work that is needed, later",
     true},
    {Wait::value, "value", "to read an element's value",
     "compute on with the tensor, or read the value once, after the loop", true},
    {Wait::elements, "elements", "to read a tensor's elements",
     "read them after the loop, or from a copy made with "
     "to(kCPU, true) once its event is done",
     true},
    {Wait::size, "size", "to learn the size of a result", "use nonzero_static or where, whose sizes are known", true},
    {Wait::to_host, "to_host", "for a copy to the host", "copy with to(kCPU, true) and wait for an event later", true},
    {Wait::from_host, "from_host", "for a copy from the host", "copy pinned memory with to(device, true)", true},
    {Wait::memory, "memory", "because memory is taken from the system or returned to it",
     "keep memory cached: do not call empty_cache in a loop, and do not bound the cache below what a step needs",
     false},
    {Wait::out_of_memory, "out_of_memory", "because the device's memory is full and cached memory is returned",
     "use less memory: smaller batches, or fewer tensors that are kept", true},
    {Wait::setup, "setup", "for something that is done once", "make the call once before", false},
    {Wait::other, "other", "for the device", "make the call outside this scope", true},
};
const Row& row(Wait wait) {
  for (const Row& each : kRows)
    if (each.wait == wait) return each;
  return kRows[0];
}

/// The program's line that made the running call; empty if it is not known.
std::string calling_line_text() {
  const void* frames[64];
  const int count = call_stack(frames);
  return describe(calling_line(std::span(frames).first(static_cast<size_t>(count))));
}

/// "item" or "item (train.cpp:31)".
std::string in_brackets(const std::string& line) { return line.empty() ? line : " (" + line + ")"; }

bool counts(Wait wait) { return t_rule.policy != Policy::allow && (wait != Wait::asked || t_rule.asked_too); }
bool is_forbidden(Wait wait) { return t_rule.policy == Policy::forbid && counts(wait) && row(wait).may_be_forbidden; }

[[noreturn]] void forbid(Wait wait, const char* source) {
  raise_as<SynchronisationError>(source,
                                 "the host would wait for the device {}, and forbid_sync forbids that{}; {}; or permit "
                                 "it with allow_sync",
                                 purpose(wait), in_brackets(calling_line_text()), remedy(wait));
}

void warn(Wait wait, const char* source, const std::string& line) {
  if (!events::has_handler()) return;
  const std::string text =
      fmt::format("the host waits for the device {}{}; {}", purpose(wait), in_brackets(line), remedy(wait));
  events::detail::emit({.kind = events::Kind::warning, .source = source, .text = text, .wait = wait, .line = line});
}

/// Tells of a wait that is over.
void announce(const events::Event& wait) {
  if (const Observer observer = detail::g_observer.load(std::memory_order_acquire)) observer(wait);
  if (events::has_handler()) events::detail::emit(wait);
}

Wait reason_now() {
  if (detail::t_reason != Wait::none) return detail::t_reason;
  return t_operator == nullptr ? Wait::asked : Wait::other;
}

/// The source of an event outside operators.
const char* source_of(Wait wait) {
  return running_or(wait == Wait::asked ? "synchronize" : wait == Wait::memory ? "memory" : name(wait));
}

}  // namespace

const char* name(Wait wait) { return row(wait).name; }
const char* purpose(Wait wait) { return row(wait).purpose; }
const char* remedy(Wait wait) { return row(wait).remedy; }

void detail::expect(Wait wait, bool on_cpu) {
  if (t_reason != Wait::none) wait = t_reason;
  if (!counts(wait) || (on_cpu && !t_rule.on_cpu)) return;
  const char* const source = source_of(wait);
  if (is_forbidden(wait)) forbid(wait, source);
  if (on_cpu) warn(wait, source, calling_line_text());
}

detail::Announced::Announced(const char* text, bool must_wait)
    : text_(text), wait_(reason_now()), source_(source_of(wait_)) {
  if (is_forbidden(wait_) && !must_wait) forbid(wait_, source_);
  if (counts(wait_) && Deferred::t_outermost == nullptr) {
    try {
      line_ = calling_line_text();
      warn(wait_, source_, line_);
    } catch (...) {
      if (!must_wait) throw;
    }
  }
  begin_ = std::chrono::steady_clock::now();
}

detail::Announced::~Announced() {
  const auto took = std::chrono::steady_clock::now() - begin_;
  if (Deferred* const deferred = Deferred::t_outermost) {
    if (deferred->wait_ == Wait::none) deferred->wait_ = wait_, deferred->text_ = text_, deferred->begin_ = begin_;
    deferred->took_ += took;
    return;
  }
  try {
    announce({events::Kind::synchronisation, source_, text_, took, wait_, begin_, line_});
  } catch (...) {  // a handler's error is no reason to end the process
  }
}

Deferred::Deferred() noexcept : is_outermost_(t_outermost == nullptr) {
  if (is_outermost_) t_outermost = this;
}

Deferred::~Deferred() {
  if (!is_outermost_) return;
  t_outermost = nullptr;
  if (wait_ == Wait::none) return;
  try {
    const char* const source = source_of(wait_);
    std::string line;
    if (counts(wait_)) {
      line = calling_line_text();
      warn(wait_, source, line);
    }
    announce({events::Kind::synchronisation, source, text_, took_, wait_, begin_, line});
  } catch (...) {  // a handler's error is no reason to end the process
  }
}

}  // namespace lorry::waits
