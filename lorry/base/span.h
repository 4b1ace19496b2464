#pragma once

// Spans: work that is no operator call and that a profiler shows, such as a module's forward, the backward of a node, a
// fused unit of a compiled function, or a call that a graph replays. Whoever does such work opens a Span on the stack.
// Without a profiler on this thread that costs one test.
//
//   const Span span({.kind = SpanKind::unit, .object = &unit, .describe = describe_unit});

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace lorry {

enum class SpanKind : uint8_t {
  call,      ///< an operator call; announced at the door, never by a Span
  scope,     ///< a Scope: a module's forward, or a range that the user named
  unit,      ///< operators that the compiler has joined, run as one kernel
  backward,  ///< the backward of one node of the tape
  replayed,  ///< a call that a graph on the CPU repeats
  replay,    ///< a replay of a graph
};

/// What work must move and compute. Zeros: unknown.
struct SpanCost {
  int64_t bytes = 0, flops = 0;
  uint8_t dtype = UINT8_MAX;  ///< the DType in which it computes, as a number; UINT8_MAX: unknown
};

/// A call that a graph repeats.
struct SpanPart {
  std::string name;  ///< its operator; empty outside operators
  std::string path;
  std::vector<const void*> frames;
  int64_t nodes = 1;  ///< kernels, copies and fills
  SpanCost cost = {};
};

/// What a profiler asks of a span that it has not met before.
struct SpanDescription {
  std::string name;                 ///< of a unit: its operators, joined by "+"
  std::string path;                 ///< where the work was first called from: Scope::path(); may be empty
  std::vector<const void*> frames;  ///< and by which calls (call_stack); may be empty
  SpanCost cost = {};
  std::vector<SpanPart> parts;  ///< of a replay on a GPU: what it repeats, in order
};

struct SpanView {
  SpanKind kind{};
  /// Of spans with the same id and kind, one is described. Never 0, and never given to another span, even after the
  /// object is gone; 0: each span is described.
  uint64_t id = 0;
  const void* object = nullptr;
  void (*describe)(const void* object, SpanDescription& to) = nullptr;
  /// Of a backward: detail::t_origin of its forward call.
  uint32_t origin = 0;
};

/// Is told what each call of a thread costs when it ends: a graph that captures the calls.
class CostObserver {
 public:
  virtual void ended(const SpanCost& cost) noexcept = 0;

 protected:
  ~CostObserver() = default;
};

/// A profiler's functions. Called on the thread of the span. Must not throw.
struct SpanHooks {
  void (*begin)(const SpanView& span) noexcept;
  void (*end)(const SpanView& span) noexcept;
};

namespace detail {
inline constinit std::atomic<const SpanHooks*> g_span_hooks{nullptr};
/// Whether a profiler hears of this thread's spans. Not a mode bit: code that silences the listeners of its calls still
/// has spans.
inline constinit thread_local bool t_spans_heard = false;
/// Who is told what this thread's calls cost; null: nobody. The door tells only of calls that it announces, so whoever
/// sets this also sets kProfileMode.
inline constinit thread_local CostObserver* t_cost_observer = nullptr;
/// What the profiler calls the place of this thread's last announced call; 0 without a profiler.
inline constinit thread_local uint32_t t_origin = 0;

/// Returns whether somebody heard of it.
inline bool begin_span(const SpanView& span) noexcept {
  const SpanHooks* const hooks = g_span_hooks.load(std::memory_order_acquire);
  if (hooks != nullptr) hooks->begin(span);
  return hooks != nullptr;
}
inline void end_span(const SpanView& span) noexcept {
  if (const SpanHooks* const hooks = g_span_hooks.load(std::memory_order_acquire)) hooks->end(span);
}
}  // namespace detail

class [[nodiscard]] Span {
 public:
  explicit Span(const SpanView& span) : span_(span) {
    if (detail::t_spans_heard) [[unlikely]]
      open_ = detail::begin_span(span_);
  }
  ~Span() {
    if (open_) [[unlikely]]
      detail::end_span(span_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const SpanView span_;
  bool open_ = false;
};

}  // namespace lorry
