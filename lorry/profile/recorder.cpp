#include "lorry/profile/recorder.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "lorry/base/error.h"
#include "lorry/base/scope.h"
#include "lorry/base/units.h"
#include "lorry/base/waits.h"
#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/observer.h"
#include "lorry/ops/dispatch/cost.h"
#include "lorry/profile/assembly.h"
#include "lorry/profile/may_launch.h"
#include "lorry/profile/nvtx.h"
#ifdef LORRY_WITH_CUDA
#include "lorry/profile/raw_launch.h"
#endif

namespace lorry::profile {
namespace {

constinit std::atomic<Recorder*> g_recorder{nullptr};
constinit std::atomic<bool> g_claimed{false};  ///< a session records, or begins to
/// GPUs were traced, in this process or in the one that it was forked from. In a child even calls of CUDA that fail
/// elsewhere hang, because CUPTI's locks may be held by threads that only the parent has.
constinit std::atomic<bool> g_traced{false}, g_forked_from_traced{false};
constinit std::atomic<uint64_t> g_sessions{0};

// Found without a call, because the room's library is loaded with the program.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadLog* t_log = nullptr;

/// Logs of threads that are recorded: they stay as long as their threads may be inside a hook. Never destroyed.
struct HeldLogs {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> logs;
};
HeldLogs& held_logs() {
  static HeldLogs& held = *new HeldLogs;
  return held;
}

/// Memory events of threads that are not recorded. Never destroyed.
struct OutsideEvents {
  std::mutex mutex;
  bool open = false;
  std::vector<std::pair<LoggedMemory, std::string>> events;
};
OutsideEvents& outside_events() {
  static OutsideEvents& outside = *new OutsideEvents;
  return outside;
}

std::string thread_name() {
  char name[32] = {};
  return prctl(PR_GET_NAME, name) == 0 ? name : "";
}

double ticks_in_ns() {
  const ClockReading start = ClockReading::now();
  while (steady_ns() - start.ns < 200'000) {
  }
  const ClockReading end = ClockReading::now();
  return static_cast<double>(end.ticks - start.ticks) / static_cast<double>(end.ns - start.ns);
}

/// This thread is recorded no more. Its modes are as before.
void forget_log() noexcept {
  t_log = nullptr;
  t_modes &= ~uint32_t{kProfileMode};
  lorry::detail::t_spans_heard = false;
  lorry::detail::t_origin = 0;
}

/// Undoes what the innermost span began.
void close_innermost(ThreadLog& log, uint64_t end) noexcept {
  const ThreadLog::Open open = log.innermost_open();
  if (open.in_nvtx) nvtx_pop();
  if (open.in_trace) log.session->trace->pop();
  if (open.entered) log.leave();
  log.close(end);
}

/// Ends the log of this thread.
void end_log() noexcept {
  ThreadLog* const log = t_log;
  if (log == nullptr) return;
  forget_log();
  const uint64_t now = ticks();
  log->note_gap(now);
  while (log->innermost() != nullptr) close_innermost(*log, now);  // scopes around the session's end
  log->thread.cpu_ns += thread_cpu_ns();
  log->has_left.store(true, std::memory_order_release);
  HeldLogs& held = held_logs();
  const std::scoped_lock lock(held.mutex);
  std::erase_if(held.logs, [&](const std::shared_ptr<ThreadLog>& x) { return x.get() == log; });
}

/// The log of this thread; null if the thread is not recorded, or not any more because the session is over.
ThreadLog* current_log() noexcept {
  ThreadLog* const log = t_log;
  if (log == nullptr) return nullptr;
  if (!log->session->is_over.load(std::memory_order_relaxed)) [[likely]]
    return log;
  end_log();
  return nullptr;
}

/// Begins a span. Null if there was no memory for that.
LoggedSpan* open(ThreadLog& log, SpanKind kind) noexcept {
  return log.open(kind, static_cast<size_t>(log.session->options.max_spans));
}

/// What the lower bounds of calls take the host, in nanoseconds: medians of several rounds. Of RecordingCosts all but
/// spans. Links are only made under a trace.
RecordingCosts call_times([[maybe_unused]] const Stream& stream, [[maybe_unused]] DeviceTrace* trace) {
  RecordingCosts made;
#ifdef LORRY_WITH_CUDA
  constexpr int kWarmUp = 4, kRounds = 15, kCalls = 32;
  std::array<double, kRounds> launches{}, waits{}, links{};
  const auto time_of = [&](const auto& call) {
    const int64_t begin = steady_ns();
    for (int i = 0; i < kCalls; ++i) call();
    const double each = static_cast<double>(steady_ns() - begin) / kCalls;
    stream.synchronize();
    return each;
  };
  for (int round = -kWarmUp; round < kRounds; ++round) {
    const size_t at = static_cast<size_t>(std::max(round, 0));
    launches[at] = time_of([&] { raw_launch(stream); });
    waits[at] = time_of([&] { raw_read(stream); });
    if (trace == nullptr) continue;
    const double linked = time_of([&] {
      trace->push(0);
      raw_launch(stream);
      trace->pop();
    });
    links[at] = linked - launches[at];  // of the same round: a processor's clock changes
  }
  const auto median = [](auto& times) {
    std::ranges::sort(times);
    return times[kRounds / 2];
  };
  made = {.launch_ns = median(launches), .link_ns = median(links), .wait_ns = median(waits)};
#endif
  return made;
}

/// The innermost span has launches of GPUs.
void begin_launches(ThreadLog& log) noexcept {
  DeviceTrace* const trace = log.session->trace.get();
  if (trace == nullptr) return;
  trace->push(uint64_t{log.number + 1} << 32 | log.innermost_number());
  log.innermost_open().in_trace = true;
}
void begin_range(ThreadLog& log, const char* name) noexcept {
  if (!log.session->options.nvtx) return;
  nvtx_push(name);
  log.innermost_open().in_nvtx = true;
}

/// A span's time begins. What the thread did before may have to be noted first.
void begin_time(ThreadLog& log, LoggedSpan& span) {
  span.begin = ticks();
  if (log.note_gap(span.begin)) [[unlikely]]
    span.begin = ticks();
}

}  // namespace

// ---- hooks: they never throw into the program -----------------------------------------------------------------------

struct RecorderHooks {
  static void before(const door::CallView& call, void*& note) {
    ThreadLog* const log = current_log();
    if (log == nullptr) return;
    LoggedSpan* const span = open(*log, SpanKind::call);
    if (span == nullptr) return;
    note = log;
    try {
      span->op = call.op, span->in_place = call.in_place;
      span->place = log->here();
      lorry::detail::t_origin = ThreadLog::origin(log->session->number, log->number, span->place);
    } catch (...) {  // no memory for the place
      log->lose();
    }
    if (may_launch(SpanKind::call, call.op)) begin_launches(*log);
    begin_range(*log, name(call.op));
    begin_time(*log, *span);
  }

  static void after(const door::CallView& call, void* note) {
    const uint64_t end = ticks();
    ThreadLog* const log = t_log;
    if (log == nullptr || note != log || log->innermost() == nullptr) return;
    LoggedSpan& span = *log->innermost();
    try {
      span.failed = call.failed;
      span.note_cost(door::cost(call));
      if (log->session->options.operands && log->innermost_number() != 0) log->note_operands(span, call);
    } catch (...) {  // no memory for the operands
      log->lose();
    }
    close_innermost(*log, end);
  }

  static void begin_span(const SpanView& view) noexcept {
    ThreadLog* const log = current_log();
    if (log == nullptr) return;
    LoggedSpan* const span = open(*log, view.kind);
    if (span == nullptr) return;
    try {
      if (view.kind == SpanKind::scope) {
        const auto* scope = static_cast<const Scope*>(view.object);
        log->enter(Scope::path());
        log->innermost_open().entered = true;
        const std::string name = scope->name();  // of the module at the top it is empty
        span->name = log->name(name.empty() ? "(model)" : name), span->is_module = scope->is_of_object();
        span->place = log->here();
      } else {
        log->describe(*span, view);
        const bool is_ours = ThreadLog::session_of(view.origin) == (log->session->number & 0xf);
        if (view.kind == SpanKind::backward && !is_ours) span->origin_or_parts = 0;
        if (span->place == 0 && view.origin == 0) span->place = log->here();
      }
    } catch (...) {
      log->lose();
    }
    if (may_launch(view.kind, kNoOp)) begin_launches(*log);
    begin_range(*log, log->names[span->name].c_str());
    begin_time(*log, *span);
  }

  static void end_span(const SpanView&) noexcept {
    const uint64_t end = ticks();
    ThreadLog* const log = current_log();
    if (log != nullptr && log->innermost() != nullptr) close_innermost(*log, end);
  }

  static void heard_wait(const events::Event& event) noexcept {
    ThreadLog* const log = current_log();
    if (log == nullptr) return;
    try {
      // The event's clock is the system's: how long ago it began is known in its nanoseconds.
      const auto ago = std::chrono::steady_clock::now() - event.begin;
      const auto ticks_of = [&](std::chrono::nanoseconds t) {
        return static_cast<uint64_t>(static_cast<double>(t.count()) * log->session->ticks_per_ns);
      };
      LoggedWait wait{.begin = ticks() - ticks_of(std::chrono::duration_cast<std::chrono::nanoseconds>(ago))};
      wait.end = wait.begin + ticks_of(event.took);
      wait.place = log->here();
      wait.name = log->name(event.source), wait.text = log->name(event.text);
      wait.span = log->innermost_number();
      log->wait(wait);
    } catch (...) {
      log->lose();
    }
  }

  static void heard_block(const memory::BlockView& block, int64_t bytes) noexcept {
    if (std::string_view(block.allocator).starts_with("meta")) return;  // memory that does not exist
    ThreadLog* const log = current_log();
    LoggedMemory record{.time = ticks(), .address = reinterpret_cast<uintptr_t>(block.data), .bytes = bytes};
    try {
      if (log == nullptr) {
        OutsideEvents& outside = outside_events();
        const std::scoped_lock lock(outside.mutex);
        if (outside.open) outside.events.emplace_back(record, block.allocator);
        return;
      }
      record.allocator = log->name(block.allocator), record.name = log->name(block.made_by);
      record.span = log->innermost_number();
      if (const LoggedSpan* const span = log->innermost()) record.place = span->place;
      if (record.place == 0) record.place = log->here();
      log->memory(record);
    } catch (...) {
      if (log != nullptr) log->lose();
    }
  }
  static void allocated(const memory::BlockView& block) noexcept { heard_block(block, block.bytes); }
  static void released(const memory::BlockView& block) noexcept { heard_block(block, -block.bytes); }

  static constexpr door::Listener kListener{.bit = kProfileMode, .before = before, .after = after};
  static constexpr SpanHooks kSpans{.begin = begin_span, .end = end_span};
  static constexpr memory::Observer kMemory{.allocated = allocated, .released = released};

  static void remove() noexcept {
    lorry::detail::g_span_hooks.store(nullptr, std::memory_order_release);
    memory::set_observer(nullptr);
    waits::set_observer(nullptr);
    door::remove_listener(kListener);
  }

  /// In a child of fork() nothing is recorded: CUPTI does not work there, and the session belongs to the parent.
  static void forked() {
    if (g_traced) g_forked_from_traced = true;
    g_claimed.store(false);  // a session may also have been beginning on another thread
    Recorder* const recorder = g_recorder.exchange(nullptr);
    if (recorder == nullptr) return;
    forget_log();
    remove();
    static_cast<void>(recorder->shared_->trace.release());  // the parent's
    recorder->has_hooks_ = false;
  }
};

// ---- the recorder ---------------------------------------------------------------------------------------------------

Recorder* Recorder::active() { return g_recorder.load(std::memory_order_acquire); }

Recorder::Recorder(const SessionOptions& options) : process_(getpid()) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, RecorderHooks::forked);
  if (g_claimed.exchange(true))
    raise_as<ValueError>("Session",
                         "a session is recording already in this process; expected one at a time; stop that "
                         "one first, or let other threads take part in it with RecordThread");
  shared_->options = options, shared_->number = g_sessions.fetch_add(1) + 1;
  try {
    begin();
  } catch (...) {
    end_hooks();
    g_claimed.store(false);
    throw;
  }
}

void Recorder::begin() {
  started_ = utc_now();
  if (options().gpu) begin_trace();
  shared_->ticks_per_ns = ticks_in_ns();
  door::add_listener(RecorderHooks::kListener);
  has_hooks_ = true;
  if (options().memory) {
    OutsideEvents& outside = outside_events();
    const std::scoped_lock lock(outside.mutex);
    outside.events.clear(), outside.open = true;
  }
  std::shared_ptr<ThreadLog> log = make_log();
  shared_->first = ClockReading::now();
  if (shared_->trace != nullptr) trace_first_ = shared_->trace->now();
  lorry::detail::g_span_hooks.store(&RecorderHooks::kSpans, std::memory_order_release);
  if (options().memory) {
    note_memory_before();
    memory::set_observer(&RecorderHooks::kMemory);
  }
  waits::set_observer(RecorderHooks::heard_wait);
  g_recorder.store(this, std::memory_order_release);
  join(std::move(log));
}

Recorder::~Recorder() {
  if (getpid() != process_) return;
  end_hooks();
  g_claimed.store(false);
}

void Recorder::note_memory_before() {
  const auto note = [&](Device device) {
    const memory::Stats stats = memory::stats(device);
    if (stats.allocated > 0) memory_before_.emplace_back(to_string(device), stats.allocated);
  };
  note(kCPU);
  for (int i = 0; i < device::count(DeviceType::cuda); ++i) note({DeviceType::cuda, static_cast<int8_t>(i)});
}

void Recorder::begin_trace() {
  if (g_forked_from_traced) {
    no_gpu_ = "CUDA does not work in a process that was forked from one that used it";
    return;
  }
  std::vector<Stream> streams;  // of the GPUs that are used and whose stream is free
  for (int i = 0; i < device::count(DeviceType::cuda); ++i) {
    const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
    if (memory::stats(gpu).reserved == 0) continue;
    const Stream stream = current_stream(gpu);
    if (!is_capturing(stream)) streams.push_back(stream);
  }
  const waits::RuleScope allowed({});
  try {
    const RecordingCosts plain = streams.empty() ? RecordingCosts() : call_times(streams[0], nullptr);
    g_traced = true;
    shared_->trace = trace_devices(no_gpu_);
    if (shared_->trace == nullptr || streams.empty()) return;
    for (size_t i = 1; i < streams.size(); ++i) call_times(streams[i], nullptr);  // the first traced ones take long
    const RecordingCosts traced = call_times(streams[0], shared_->trace.get());
    costs_.launch_ns = std::max(0.0, traced.launch_ns - plain.launch_ns);
    costs_.link_ns = std::max(0.0, traced.link_ns);
    // A read enqueues a copy.
    costs_.wait_ns = std::max(0.0, traced.wait_ns - plain.wait_ns - costs_.launch_ns);
  } catch (const std::exception& error) {  // of an earlier call, perhaps
    shared_->trace.reset();
    no_gpu_ = error.what();
  }
}

std::shared_ptr<ThreadLog> Recorder::make_log() {
  if (current_log() != nullptr) raise_as<ValueError>("RecordThread", "this thread is recorded already");
  const std::scoped_lock lock(mutex_);
  if (logs_.size() >= ThreadLog::kMostThreads)
    raise_as<ValueError>("RecordThread", "too many threads were recorded; got {}; expected at most {}",
                         logs_.size() + 1, ThreadLog::kMostThreads);
  auto log = std::make_shared<ThreadLog>(static_cast<uint32_t>(logs_.size()), options().lines);
  log->session = shared_;
  log->spans.reserve(), log->gaps.reserve();
  if (options().operands) log->storages.reserve();
  if (options().memory) log->memory_records.reserve();
  logs_.push_back(log);
  return log;
}

void Recorder::join(std::shared_ptr<ThreadLog> log) {
  log->thread.name = thread_name();
  if (Scope::innermost() != nullptr) log->enter(Scope::path());
  {
    HeldLogs& held = held_logs();
    const std::scoped_lock lock(held.mutex);
    held.logs.push_back(log);
  }
  log->begin(ticks());
  t_log = log.get();
  t_modes |= kProfileMode;
  lorry::detail::t_spans_heard = true;
}

void Recorder::leave(uint64_t session) noexcept {
  if (t_log != nullptr && t_log->session->number == session) end_log();
}

void Recorder::end_hooks() noexcept {
  if (!has_hooks_) return;
  has_hooks_ = false;
  shared_->is_over.store(true);
  g_recorder.store(nullptr, std::memory_order_release);
  RecorderHooks::remove();
  leave(number());
}

Recording Recorder::finish() {
  Recording recording;
  if (getpid() != process_) {
    recording.incomplete.push_back("this process is a child of the one that was recorded");
    return recording;
  }
  waits::set_observer(nullptr);  // waiting for the GPUs is no wait of the program
  std::vector<std::string> failures;
  if (shared_->trace != nullptr) {
    const ModeScope silent(0, kProfileMode);
    const waits::RuleScope allowed({});
    for (int i = 0; i < device::count(DeviceType::cuda); ++i) {
      const Device gpu{DeviceType::cuda, static_cast<int8_t>(i)};
      if (memory::stats(gpu).reserved == 0) continue;  // not used: waiting would create a context
      try {
        device::synchronize(gpu);
      } catch (const std::exception& error) {
        failures.push_back(error.what());
      }
    }
    trace_last_ = shared_->trace->now();
  }
  last_ = ClockReading::now();
  end_hooks();
  Traced traced;
  if (shared_->trace != nullptr) traced = shared_->trace->stop();
  Assembly assembly({.first = shared_->first, .last = last_, .trace_first = trace_first_, .trace_last = trace_last_});
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& log : logs_) assembly.add(*log);
  }
  std::vector<std::pair<LoggedMemory, std::string>> outside;
  {
    OutsideEvents& events = outside_events();
    const std::scoped_lock lock(events.mutex);
    outside.swap(events.events), events.open = false;
  }
  for (const auto& [record, allocator] : outside) assembly.add_outside(record, allocator);
  for (const auto& [allocator, bytes] : memory_before_) assembly.add_memory_before(allocator, bytes);
  assembly.add(std::move(traced));
  for (const std::string& failure : failures) assembly.add_failure(failure);
  recording = assembly.finish();
  recording.started = started_, recording.no_gpu = no_gpu_, recording.process = process_;
  recording.costs = costs_, recording.costs.span_ns = span_cost_ns(recording);
  return recording;
}

}  // namespace lorry::profile
