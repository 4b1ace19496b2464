#include "lorry/replay/bucket.h"

#include <algorithm>
#include <chrono>

#include "lorry/base/events.h"
#include "lorry/base/waits.h"
#include "lorry/device/stream.h"

namespace lorry::replay::detail {
namespace {

/// Microseconds a call: the median of samples that take a few milliseconds together. A sample is one call, or several
/// for the throughput.
template <class Call>
double time_call(Policy policy, Device device, const Call& call) {
  constexpr double kTotal = 3000;
  const bool together = policy == Policy::throughput;
  const size_t least = together ? 3 : 5;
  const waits::Reason reason(waits::Wait::setup);
  const auto time = [&](size_t calls) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < calls; ++i) call();
    current_stream(device).synchronize();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  call();
  const double once = time(1);
  const size_t calls = together ? static_cast<size_t>(std::clamp(kTotal / (10 * once), 2.0, 10.0)) : 1;
  std::vector<double> samples;
  for (double spent = once; samples.size() < least || (spent < kTotal && samples.size() < 100);) {
    const double sample = time(calls);
    spent += sample;
    samples.push_back(sample / static_cast<double>(calls));
  }
  const auto middle = samples.begin() + static_cast<int64_t>(samples.size() / 2);
  std::ranges::nth_element(samples, middle);
  return *middle;
}

}  // namespace

Bucket::Bucket(const SizedFunction& function, const BucketOptions& options, Device device, int64_t size,
               std::vector<Tensor> inputs)
    : function_(function), options_(options), device_(device), inputs_(std::move(inputs)) {
  stats_.size = size;
  stats_.execution = execution_of(options, size);
}

/// The function as it is, or its recording.
std::vector<Tensor> Bucket::call() {
  const auto function = [&] { return function_(inputs_, stats_.size); };
  if (compiled_ == nullptr) return function();
  return compiled_->call(inputs_, {}, lorry::detail::FunctionRef(function));
}

void Bucket::set_execution(Execution execution) {
  stats_.execution = execution;
  graph_.reset();
  compiled_.reset();
}

void Bucket::warm_up() {
  if (!is_compiled(stats_.execution) || compiled_ != nullptr) return;
  CompileOptions how = options_.compile;
  how.wait = true;
  how.dynamic = Dynamic::never;  // there is one size
  compiled_ = std::make_unique<lorry::detail::CompiledFunction>(how);
  // Some functions are recorded more than once (compile.cpp: kAttempts), and tuning takes four runs of four ways.
  const int calls = how.max_autotune ? 20 : 5;
  for (int i = 0; i < calls && (how.max_autotune || compiled_->stats().hits == 0); ++i) call();
}

void Bucket::capture(std::shared_ptr<memory::Pool> pool) {
  const int64_t before = pool->reserved();
  graph_.emplace(
      [this] { return call(); },
      CaptureOptions{.warm_up = options_.warm_up, .device = device_, .pool = pool, .follow = options_.follow});
  bytes_ = graph_->stats().bytes + pool->reserved() - before;
}

void Bucket::drop_graph() { graph_.reset(); }

void Bucket::drop_outdated() {
  if (!graph_ || !graph_->is_outdated()) return;
  events::emit(events::Kind::warning, "BucketSet",
               fmt::format("a tensor has another dtype, shape, device or alignment than in the capture, so the bucket "
                           "of {} is captured again",
                           stats_.size));
  drop_graph();
}

double Bucket::time_of(Execution execution) {
  set_execution(execution);
  try {
    warm_up();
    if (has_graph(execution)) capture(std::make_shared<memory::Pool>(device_));
    return time_call(options_.policy, device_, [&] { run(); });
  } catch (const CaptureError&) {
    return 0;
  }
}

void Bucket::measure() {
  for (const Execution execution : kExecutions) stats_.measured_us[static_cast<size_t>(execution)] = time_of(execution);
  Execution best = Execution::eager;
  const auto us = [&](Execution x) { return stats_.measured_us[static_cast<size_t>(x)]; };
  for (const Execution execution : kExecutions)
    if (us(execution) > 0 && us(execution) < us(best)) best = execution;
  set_execution(best);
}

std::vector<Tensor> Bucket::run() {
  if (!graph_) return call();
  graph_->replay();
  return graph_->outputs();
}

void Bucket::count(int64_t batch) {
  ++stats_.hits;
  stats_.padded_rows += stats_.size - batch;
}

BucketStats Bucket::stats() const {
  BucketStats stats = stats_;
  stats.captured = graph_.has_value();
  if (!graph_) return stats;
  stats.bytes = bytes_;
  stats.graph = graph_->stats();
  return stats;
}

}  // namespace lorry::replay::detail
