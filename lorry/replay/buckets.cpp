#include "lorry/replay/buckets.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <ranges>
#include <thread>

#include "lorry/base/waits.h"
#include "lorry/device/fence.h"
#include "lorry/ops/ops.h"
#include "lorry/replay/bucket.h"
#include "lorry/replay/graph_memory.h"
#include "lorry/replay/padded_inputs.h"
#include "lorry/replay/thread_modes.h"

namespace lorry::replay::detail {
namespace {

/// Whether two tensors have the same bits.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  const auto bytes = [](const Tensor& x) { return x.contiguous().view({-1}).view(kU8); };
  return a.numel() == 0 || bytes(a).equal(bytes(b));
}

}  // namespace

struct Buckets::State {
  State(Function f, BucketOptions o)
      : options(std::move(o)),
        device(options.device.value_or(default_device())),
        sizes(sizes_of(options)),
        function(std::move(f), options),
        inputs(options, device, sizes.back()),
        memory(device, options.memory_budget, buckets) {}
  ~State() {
    stop = true;
    if (thread.joinable()) thread.join();
  }

  void prepare(std::span<const Tensor> arguments, int64_t batch);
  std::vector<Tensor> call(std::span<const Tensor> arguments, int64_t batch);
  /// Held while the inputs, the buckets and their pool are used, if there may be a thread. Calls do not wait for the
  /// thread: while it captures, the result may hold nothing.
  std::unique_lock<std::mutex> take_turn();

  const BucketOptions options;
  const Device device;
  const std::vector<int64_t> sizes;
  const SizedFunction function;
  PaddedInputs inputs;
  const OwnedStream stream{device};  ///< of all captures: memory of a pool is shared by graphs of one stream
  std::map<int64_t, Bucket> buckets;
  GraphMemory memory;

  std::mutex mutex;
  std::thread thread;
  std::atomic<bool> stop{false}, thread_captures{false};
  std::exception_ptr error;  ///< of the thread
  const Event used{device};  ///< after the last call, which the thread's captures wait for
  Stream last = stream;      ///< of the last call

 private:
  void start_thread();
  void capture_all();
  void make_ready(Bucket& bucket);
  template <class F>
  void step(const F& work);
  template <class F>
  void in_trial(const F& runs);
  std::vector<Tensor> run(Bucket& bucket, std::span<const Tensor> arguments, int64_t batch);
  void compare(const Bucket& bucket, std::span<const Tensor> arguments, std::span<const Tensor> results, int64_t batch);
};

std::unique_lock<std::mutex> Buckets::State::take_turn() {
  std::unique_lock lock(mutex, std::defer_lock);
  if (options.capture != Capture::in_background) return lock;
  if (thread_captures)
    static_cast<void>(lock.try_lock());
  else
    lock.lock();
  return lock;
}

void Buckets::State::prepare(std::span<const Tensor> arguments, int64_t batch) {
  if (inputs.is_allocated()) return;
  const NoGrad no_gradients;
  inputs.allocate(arguments, batch);
  for (const int64_t size : sizes) buckets.try_emplace(size, function, options, device, size, inputs.of(size));
  if (options.capture == Capture::at_first_use) return;
  try {
    if (options.capture == Capture::in_background)
      start_thread();
    else
      capture_all();
  } catch (...) {
    thread_captures = false;  // the thread could not be started
    memory.drop_all();
    buckets.clear();
    inputs.clear();
    throw;
  }
}

void Buckets::State::start_thread() {
  used.record(current_stream(device));
  thread_captures = true;
  thread = std::thread([this, modes = ThreadModes()] {
    const ThreadModes::Scope scope(modes);
    try {
      capture_all();
    } catch (...) {
      const std::scoped_lock lock(mutex);
      error = std::current_exception();
    }
    thread_captures = false;
  });
}

/// Does some of the work that captures, at the caller's or on the thread, after earlier work of calls.
template <class F>
void Buckets::State::step(const F& work) {
  const bool on_thread = thread_captures;  // then no call does such work
  const std::unique_lock lock = on_thread ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
  const Stream caller = current_stream(device), own = stream;
  if (on_thread)
    used.block(own);
  else if (device.is_cuda())
    fence(caller, own);
  const auto end = [&] {
    const waits::Reason reason(waits::Wait::setup);
    if (on_thread)
      own.synchronize();
    else if (device.is_cuda())
      fence(own, caller);
  };
  try {
    const StreamScope scope(own);
    work();
  } catch (...) {
    try {
      end();
    } catch (const std::exception&) {
      // The device has had a fault, which every later call reports.
    }
    throw;
  }
  end();
}

/// Makes runs that nobody asked for, and tells BucketOptions::trial.
template <class F>
void Buckets::State::in_trial(const F& runs) {
  if (!options.trial) return runs();
  options.trial(true);
  try {
    runs();
  } catch (...) {
    options.trial(false);
    throw;
  }
  options.trial(false);
}

/// Measures, compiles and captures a bucket, as the options say, or captures it if it has no graph yet.
void Buckets::State::make_ready(Bucket& bucket) {
  const auto needs_graph = [&] { return bucket.wants_graph() && !bucket.is_captured() && memory.may_capture(bucket); };
  if (bucket.is_ready && !needs_graph()) return;
  const auto runs = [&] {
    if (options.policy != Policy::fixed && bucket.stats().measured_us[0] == 0) bucket.measure();
    bucket.warm_up();
    if (needs_graph()) memory.capture(bucket);
    return bucket.is_ready = true;
  };
  step([&] { in_trial([&] { function.at(bucket.stats().size, runs); }); });
}

/// The largest first, so that the others fit into its memory.
void Buckets::State::capture_all() {
  for (auto& [size, bucket] : std::views::reverse(buckets))
    if (!stop) make_ready(bucket);
}

std::vector<Tensor> Buckets::State::call(std::span<const Tensor> arguments, int64_t batch) {
  if (!inputs.is_allocated()) prepare(arguments, batch);
  inputs.check(arguments);
  const NoGrad no_gradients;
  const std::unique_lock lock = take_turn();
  if (lock && error != nullptr) std::rethrow_exception(std::exchange(error, nullptr));
  const auto found = options.padding ? buckets.lower_bound(batch) : buckets.find(batch);
  const bool in_background = options.capture == Capture::in_background;
  if (found == buckets.end() || (in_background && (!lock || !found->second.is_ready)))
    return function.at(batch, [&] { return function(arguments, batch); });
  std::vector<Tensor> results = run(found->second, arguments, batch);
  if (in_background) used.record(current_stream(device));
  return results;
}

std::vector<Tensor> Buckets::State::run(Bucket& bucket, std::span<const Tensor> arguments, int64_t batch) {
  const Stream now = current_stream(device);
  if (device.is_cuda() && !(last == now)) fence(last, now);
  last = now;
  inputs.fill(arguments, batch);
  memory.note_use(bucket);
  if (!thread_captures) {
    bucket.drop_outdated();
    make_ready(bucket);
  }
  const int64_t size = bucket.stats().size;
  std::vector<Tensor> all = bucket.is_captured() ? bucket.run() : function.at(size, [&] { return bucket.run(); });
  std::vector<Tensor> results = inputs.cut(all, size, batch);
  bucket.count(batch);
  if (options.verify) compare(bucket, arguments, results, batch);
  return results;
}

void Buckets::State::compare(const Bucket& bucket, std::span<const Tensor> arguments, std::span<const Tensor> results,
                             int64_t batch) {
  const std::vector<Tensor> expected = function.at(batch, [&] { return function(arguments, batch); });
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].defined() && !same_bits(results[i], expected[i]))
      raise_as<ValueError>("BucketSet",
                           "result {} of the bucket of {} differs from the function's own; expected the same bits: "
                           "rows of the batch, or of its padding, influence each other, or kernels depend on its size",
                           i, bucket.stats().size);
}

Buckets::Buckets(Function function, const BucketOptions& options)
    : state_(std::make_unique<State>(std::move(function), options)) {}
Buckets::~Buckets() = default;

void Buckets::prepare(std::span<const Tensor> arguments, std::optional<int64_t> rows) {
  state_->prepare(arguments, state_->inputs.batch_of(arguments, rows));
}

std::vector<Tensor> Buckets::call(std::span<const Tensor> arguments, std::optional<int64_t> rows) {
  return state_->call(arguments, state_->inputs.batch_of(arguments, rows));
}

void Buckets::wait() {
  if (state_->thread.joinable()) state_->thread.join();
  if (state_->error != nullptr) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

bool Buckets::is_prepared() const { return state_->inputs.is_allocated(); }

std::vector<BucketStats> Buckets::stats() const {
  std::unique_lock lock(state_->mutex, std::defer_lock);
  if (state_->options.capture == Capture::in_background) lock.lock();
  std::vector<BucketStats> all;
  for (const auto& [size, bucket] : state_->buckets) all.push_back(bucket.stats());
  return all;
}

}  // namespace lorry::replay::detail
