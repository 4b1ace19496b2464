#include "lorry/profile/recorder.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <ctime>

#include "lorry/base/error.h"
#include "lorry/base/scope.h"
#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/observer.h"
#include "lorry/ops/dispatch/cost.h"
#include "lorry/profile/assembly.h"
#include "lorry/profile/nvtx.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/profile/raw_launch.h"
#endif

namespace lorry::profile {
namespace {

constinit std::atomic<Recorder*> g_recorder{nullptr};
constinit std::atomic<uint64_t> g_sessions{0};
// Found without a call, because the room's library is loaded with the program.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadLog* t_log = nullptr;
/// Of t_log's session.
[[gnu::tls_model("initial-exec")]] constinit thread_local Recorder* t_recorder = nullptr;

int64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

std::string thread_name() {
  char name[32] = {};
  return prctl(PR_GET_NAME, name) == 0 ? name : "";
}

/// ISO 8601 in UTC.
std::string date_and_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[sizeof "2000-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%FT%TZ", &utc);
  return text;
}

void begin_on_devices(const ThreadLog& log) noexcept {
  if (DeviceTrace* const trace = t_recorder->trace())
    trace->push(uint64_t{log.number + 1} << 32 | log.innermost_number());
}
void end_on_devices() noexcept {
  if (DeviceTrace* const trace = t_recorder->trace()) trace->pop();
}

LoggedSpan& open(ThreadLog& log, SpanKind kind) {
  return log.open(kind, static_cast<size_t>(t_recorder->options().max_spans));
}

}  // namespace

// ---- hooks ----------------------------------------------------------------------------------------------------------

/// Whether a call may launch something.
static bool may_launch(const door::CallView& call) { return row(call.op).kind != OpKind::view; }

struct RecorderHooks {
  static void before(const door::CallView& call, void*& note) {
    ThreadLog* const log = t_log;
    if (log == nullptr) return;
    note = log;
    log->note_gap(ticks());
    LoggedSpan& span = open(*log, SpanKind::call);
    span.op = call.op, span.in_place = call.in_place;
    span.place = log->here();
    lorry::detail::t_origin = ThreadLog::origin(log->number, span.place);
    if (may_launch(call)) begin_on_devices(*log);
    if (t_recorder->options().nvtx) nvtx_push(name(call.op));
    span.begin = ticks();
  }

  static void after(const door::CallView& call, void* note) {
    const uint64_t end = ticks();
    ThreadLog* const log = t_log;
    if (log == nullptr || note != log || log->innermost() == nullptr) return;
    if (t_recorder->options().nvtx) nvtx_pop();
    if (may_launch(call)) end_on_devices();
    LoggedSpan& span = *log->innermost();
    span.failed = call.failed;
    const door::Cost cost = door::cost(call);
    span.bytes = cost.bytes, span.flops = cost.flops;
    if (t_recorder->options().operands) log->note_operands(span, call);
    log->close(end);
  }

  static void begin_span(const SpanView& view) noexcept {
    ThreadLog* const log = t_log;
    if (log == nullptr) return;
    log->note_gap(ticks());
    try {
      LoggedSpan& span = open(*log, view.kind);
      if (view.kind == SpanKind::scope) {
        const auto* scope = static_cast<const Scope*>(view.object);
        log->enter(Scope::path());
        span.name = log->name(scope->name()), span.is_module = scope->is_of_object();
        span.place = log->here();
      } else {
        log->describe(span, view);
        if (span.place == 0 && view.origin == 0) span.place = log->here();
        begin_on_devices(*log);
      }
      if (t_recorder->options().nvtx) nvtx_push(log->names[span.name].c_str());
      span.begin = ticks();
    } catch (...) {  // no memory for the record; the program goes on
      log->lose();
    }
  }

  static void end_span(const SpanView& view) noexcept {
    const uint64_t end = ticks();
    ThreadLog* const log = t_log;
    if (log == nullptr || log->innermost() == nullptr) return;
    if (t_recorder->options().nvtx) nvtx_pop();
    if (view.kind == SpanKind::scope)
      log->leave();
    else
      end_on_devices();
    log->close(end);
  }

  static void heard_event(const events::Event& event) {
    ThreadLog* const log = t_log;
    if (log == nullptr || event.kind != events::Kind::synchronisation) return;
    const uint64_t end = ticks();
    LoggedWait wait{.end = end};
    wait.begin = end - static_cast<uint64_t>(static_cast<double>(event.took.count()) * t_recorder->ticks_per_ns());
    wait.place = log->here(), wait.why = event.wait;
    wait.name = log->name(event.source), wait.text = log->name(event.text);
    wait.span = log->innermost_number();
    log->wait(wait);
  }

  static void heard_block(const memory::BlockView& block, int64_t bytes) noexcept {
    try {
      LoggedMemory record{.time = ticks(), .address = reinterpret_cast<uintptr_t>(block.data), .bytes = bytes};
      ThreadLog* const log = t_log;
      if (log == nullptr) {
        if (Recorder* const recorder = g_recorder.load(std::memory_order_acquire))
          recorder->note_outside(record, block.allocator);
        return;
      }
      record.allocator = log->name(block.allocator), record.name = log->name(block.made_by);
      record.span = log->innermost_number();
      if (const LoggedSpan* const span = log->innermost()) record.place = span->place;
      if (record.place == 0) record.place = log->here();
      log->memory(record);
    } catch (...) {
      if (t_log != nullptr) t_log->lose();
    }
  }
  static void allocated(const memory::BlockView& block) noexcept { heard_block(block, block.bytes); }
  static void released(const memory::BlockView& block) noexcept { heard_block(block, -block.bytes); }

  static constexpr door::Listener kListener{.bit = kProfileMode, .before = before, .after = after};
  static constexpr SpanHooks kSpans{.begin = begin_span, .end = end_span};
  static constexpr memory::Observer kMemory{.allocated = allocated, .released = released};

  /// In a child of fork() nothing is recorded: CUPTI does not work there, and the session belongs to the parent.
  static void forked() {
    if (g_recorder.exchange(nullptr) == nullptr) return;
    t_log = nullptr, t_recorder = nullptr;
    t_modes &= ~uint32_t{kProfileMode};
    lorry::detail::t_spans_heard = false;
    lorry::detail::t_origin = 0;
    lorry::detail::g_span_hooks.store(nullptr);
    memory::set_observer(nullptr);
    door::remove_listener(kListener);
  }
};

// ---- the recorder ---------------------------------------------------------------------------------------------------

Recorder* Recorder::active() { return g_recorder.load(std::memory_order_acquire); }

Recorder::Recorder(const SessionOptions& options)
    : options_(options), number_(g_sessions.fetch_add(1) + 1), process_(getpid()) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, RecorderHooks::forked);
  Recorder* none = nullptr;
  if (!g_recorder.compare_exchange_strong(none, this))
    raise_as<ValueError>("Session",
                         "a session is recording already in this process; expected one at a time; stop that "
                         "one first, or let other threads take part in it with RecordThread");
  try {
    door::add_listener(RecorderHooks::kListener);
  } catch (...) {
    g_recorder.store(nullptr);
    throw;
  }
  started_ = date_and_time();
  if (options_.gpu) trace_ = trace_devices(no_gpu_);
  if (trace_ != nullptr) warm_up_devices();
  listening_ = true;
  if (options_.memory) note_memory_before();
  measure_ticks();
  first_ = ClockReading::now();
  if (trace_ != nullptr) trace_first_ = trace_->now();
  lorry::detail::g_span_hooks.store(&RecorderHooks::kSpans, std::memory_order_release);
  if (options_.memory) memory::set_observer(&RecorderHooks::kMemory);
  outer_handler_ = events::set_handler({});
  events::set_handler([this](const events::Event& event) {
    RecorderHooks::heard_event(event);
    if (outer_handler_) outer_handler_(event);
  });
}

Recorder::~Recorder() { abandon(); }

void Recorder::note_memory_before() {
  const auto note = [&](Device device) {
    const memory::Stats stats = memory::stats(device);
    if (stats.allocated > 0) memory_before_.emplace_back(to_string(device), stats.allocated);
  };
  note(kCPU);
  for (int i = 0; i < device::count(DeviceType::cuda); ++i) note({DeviceType::cuda, static_cast<int8_t>(i)});
}

void Recorder::warm_up_devices() {
#ifdef LORRY_WITH_CUDA
  for (int i = 0; i < device::count(DeviceType::cuda); ++i) {
    const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
    if (memory::stats(gpu).reserved == 0) continue;
    const Stream stream = current_stream(gpu);
    if (is_capturing(stream)) continue;
    raw_launch(stream);
    stream.synchronize();
  }
#endif
}

void Recorder::measure_ticks() {
  const ClockReading start = ClockReading::now();
  while (steady_ns() - start.ns < 200'000) {
  }
  const ClockReading end = ClockReading::now();
  ticks_per_ns_ = static_cast<double>(end.ticks - start.ticks) / static_cast<double>(end.ns - start.ns);
}

void Recorder::join() {
  if (t_log != nullptr) raise_as<ValueError>("RecordThread", "this thread is recorded already");
  const std::scoped_lock lock(mutex_);
  if (logs_.size() >= ThreadLog::kMostThreads)
    raise_as<ValueError>("RecordThread", "too many threads were recorded; got {}; expected at most {}",
                         logs_.size() + 1, ThreadLog::kMostThreads);
  auto log = std::make_unique<ThreadLog>(static_cast<uint32_t>(logs_.size()), options_.lines, options_.operands);
  log->thread.name = thread_name();
  log->thread.begin = steady_ns() - first_.ns;
  log->thread.cpu_ns = -thread_cpu_ns();
  if (Scope::innermost() != nullptr) log->enter(Scope::path());
  t_log = log.get(), t_recorder = this;
  logs_.push_back(std::move(log));
  t_modes |= kProfileMode;
  lorry::detail::t_spans_heard = true;
}

void Recorder::leave() noexcept {
  if (t_log == nullptr || t_recorder != this) return;
  t_modes &= ~uint32_t{kProfileMode};
  lorry::detail::t_spans_heard = false;
  lorry::detail::t_origin = 0;
  const uint64_t now = ticks();
  t_log->note_gap(now);
  while (t_log->innermost() != nullptr) t_log->close(now);  // scopes around the session's end
  t_log->thread.end = steady_ns() - first_.ns;
  t_log->thread.cpu_ns += thread_cpu_ns();
  t_log = nullptr, t_recorder = nullptr;
}

void Recorder::note_outside(const LoggedMemory& record, std::string_view allocator) {
  const std::scoped_lock lock(mutex_);
  outside_.emplace_back(record, allocator);
}

void Recorder::abandon() noexcept {
  if (!listening_ || getpid() != process_) return;
  listening_ = false;
  leave();
  lorry::detail::g_span_hooks.store(nullptr, std::memory_order_release);
  if (options_.memory) memory::set_observer(nullptr);
  door::remove_listener(RecorderHooks::kListener);
  events::set_handler(outer_handler_);
  g_recorder.store(nullptr, std::memory_order_release);
}

Recording Recorder::finish() {
  Recording recording;
  if (getpid() != process_) {
    recording.incomplete.push_back("this process is a child of the one that was recorded");
    return recording;
  }
  std::vector<std::string> failures;
  if (trace_ != nullptr) {
    const ModeScope silent(0, kProfileMode);
    for (int i = 0; i < device::count(DeviceType::cuda); ++i) {
      const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
      if (memory::stats(gpu).reserved == 0) continue;  // not used: waiting would create a context
      try {
        device::synchronize(gpu);
      } catch (const std::exception& error) {
        failures.push_back(error.what());
      }
    }
    trace_last_ = trace_->now();
  }
  last_ = ClockReading::now();
  abandon();
  Traced traced;
  if (trace_ != nullptr) traced = trace_->stop();
  Assembly assembly({.first = first_, .last = last_, .trace_first = trace_first_, .trace_last = trace_last_});
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& log : logs_) assembly.add(*log);
    for (const auto& [record, allocator] : outside_) assembly.add_outside(record, allocator);
  }
  for (const auto& [allocator, bytes] : memory_before_) assembly.add_memory_before(allocator, bytes);
  assembly.add(traced);
  for (const std::string& failure : failures) assembly.add_failure(failure);
  recording = assembly.finish();
  recording.started = started_, recording.no_gpu = no_gpu_, recording.process = process_;
  return recording;
}

}  // namespace lorry::profile
