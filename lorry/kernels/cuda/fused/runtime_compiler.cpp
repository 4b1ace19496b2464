#include "lorry/kernels/cuda/fused/runtime_compiler.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lorry/base/error.h"
#include "lorry/base/events.h"
#include "lorry/base/private_folder.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/kernels/cuda/fused/embedded.h"

namespace lorry::kernels::cuda {
namespace {

/// --minimal leaves out what kernels do not use (textures, the device's runtime): 7 % less time per kernel.
constexpr const char* kFlags[] = {"--std=c++20", "--fmad=false", "--device-as-default-execution-space", "--minimal"};

/// The process's compiler, once it is made, and the process that made it: a child made by fork() has none of its
/// threads.
std::atomic<RuntimeCompiler*> g_compiler{nullptr};
std::atomic<pid_t> g_process{0};

void end_compiler() {
  RuntimeCompiler* const compiler = g_compiler.load(std::memory_order_acquire);
  if (compiler != nullptr && g_process.load(std::memory_order_relaxed) == ::getpid()) compiler->end();
}

/// Ends the compiler's threads when the process ends. NVRTC registers exit handlers whenever it first needs something,
/// also in the middle of a compilation, and handlers run in reverse order. So no handler of ours is certain to run
/// before theirs, and a compilation that is still running then would crash. But exit() destroys the thread-local
/// objects of the thread that calls it before it runs any handler: the main thread, if `main` returns. It has this
/// object from the start of the process on. (A main thread that calls pthread_exit also ends the compiler; later
/// kernels are refused.)
struct EndsCompiler {
  bool active = false;
  ~EndsCompiler() {
    if (active) end_compiler();
  }
};
thread_local EndsCompiler t_ends_compiler;
[[maybe_unused]] const bool kRegistered = t_ends_compiler.active = ::gettid() == ::getpid();

/// For an exit() in another thread: ends the compiler before the handlers that NVRTC has registered so far.
void end_at_exit(bool quick) {
  constexpr int kMost = 32;
  static std::atomic<int> counts[2] = {0, 0};
  if (counts[quick].fetch_add(1) < kMost) std::atexit(end_compiler);
}

Compiled compile_with(const std::string& source, const std::vector<std::string>& flags, bool quick) {
  const Nvrtc& nvrtc = Nvrtc::get();
  end_at_exit(quick);
  Compiled made = nvrtc.compile(source, embedded_headers(), flags);
  end_at_exit(quick);
  return made;
}

Compiled compile(const std::string& source, const std::string& architecture) {
  return compile_with(source, nvrtc_flags(architecture), false);
}

/// In 7 to 25 % less time.
Compiled compile_quickly(const std::string& source, const std::string& architecture) {
  std::vector<std::string> flags = nvrtc_flags(architecture);
  flags.push_back("--Ofast-compile=mid");
  return compile_with(source, flags, true);
}

/// Loads a cubin and never unloads it, because graphs that contain its kernel may live as long as the process.
const void* load_cubin(const std::string& cubin, const std::string& name, int device) {
#if CUDART_VERSION >= 12080
  const lorry::cuda::DeviceGuard guard(device);
  // Relaxed, because another thread may be capturing a stream in a mode in which these calls would invalidate the
  // capture.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  lorry::cuda::check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  cudaError_t error = cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error == cudaSuccess) error = cudaLibraryGetKernel(&kernel, library, name.c_str());
  // Forces the driver to load the code now; it would otherwise do so at the first launch, which a capture does not
  // allow.
  cudaFuncAttributes attributes;
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
  cudaThreadExchangeStreamCaptureMode(&mode);
  lorry::cuda::check(error, "cudaLibraryLoadData");
  return reinterpret_cast<const void*>(kernel);
#else
  raise<Error>("nvrtc: kernels compiled at run time cannot be loaded; got CUDA {}; expected 12.8 or newer",
               CUDART_VERSION / 1000);
#endif
}

/// Writes a source that failed to compile to a new file that only the user can access. Returns its path; empty if it
/// could not be written.
std::string write_refused(const std::string& source) {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  if (error) return {};
  std::string path = (folder / "lorry-refused-XXXXXX.cu").string();
  const int file = ::mkstemps(path.data(), 3);
  if (file < 0) return {};
  const bool whole = ::write(file, source.data(), source.size()) == static_cast<ssize_t>(source.size());
  ::close(file);
  return whole ? path : std::string();
}

uint32_t emitter_version() {
  return static_cast<uint32_t>(std::strtoul(std::string(embedded_hash(), 8).c_str(), nullptr, 16));
}

}  // namespace

std::string architecture_of(int device) {
  return fmt::format("sm_{}", lorry::cuda::properties(device).compute_capability);
}

std::vector<std::string> nvrtc_flags(const std::string& architecture) {
  std::vector<std::string> flags(std::begin(kFlags), std::end(kFlags));
  flags.push_back("--gpu-architecture=" + architecture);
  return flags;
}

void RuntimeKernel::wait() const {
  will_wait();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return state_ != State::waiting; });
}

std::string RuntimeKernel::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

void RuntimeKernel::finish(State state, const void* function, std::string why) {
  // Code that was made quickly stays: others may be about to launch it.
  if (function != nullptr) function_.store(function, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
    refused_ = std::move(why);
  }
  done_.notify_all();
}

RuntimeCompiler& RuntimeCompiler::get() {
  // Never destroyed, because other threads may use it while the process ends. Its own threads end before libraries do.
  static RuntimeCompiler& kCompiler = [&]() -> RuntimeCompiler& {
    static KernelCache& kCache = *new KernelCache(cache_folder());
    const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, 4);
    // With a warm cache NVRTC is never opened, so its version is taken from the toolkit that Lorry is built with.
    auto& made = *new RuntimeCompiler(
        {compile, load_cubin, fmt::format("nvrtc {}", CUDART_VERSION), threads, compile_quickly}, kCache);
    g_process = ::getpid();
    g_compiler.store(&made, std::memory_order_release);
    return made;
  }();
  return kCompiler;
}

std::shared_ptr<const RuntimeKernel> RuntimeCompiler::kernel(const KernelSource& source,
                                                             const std::string& architecture, int device) {
  std::shared_ptr<RuntimeKernel> made;
  {
    const std::lock_guard lock(mutex_);
    auto& known = kernels_[fmt::format("{} {}\n{}", device, architecture, source.text)];
    if (known != nullptr) return known;
    made = known = std::make_shared<RuntimeKernel>();
  }
  Job job{source, {}, device, made, parts_.compile_quickly != nullptr};
  job.key = {.source = source.text,
             .architecture = architecture,
             .compiler = parts_.compiler,
             .flags = fmt::format("{}", fmt::join(kFlags, " ")),
             .emitter_version = emitter_version()};
  try {
    if (!load_cached(job)) enqueue(std::move(job));
  } catch (const std::exception& error) {  // no memory, or no thread
    refuse(source, *made, error.what());
  }
  return made;
}

void RuntimeCompiler::warm_up() {
  try {
    if (!cache_.has_files()) enqueue({});
  } catch (const std::exception&) {
    // The first compilation reports what is wrong.
  }
}

void RuntimeCompiler::enqueue(Job job) {
  const std::lock_guard lock(mutex_);
  if (job.kernel == nullptr && std::exchange(warm_, true)) return;
  if (ends_) {
    if (job.kernel != nullptr) job.kernel->finish(RuntimeKernel::State::refused, nullptr, "the process ends");
    return;
  }
  jobs_.push_back(std::move(job));
  if (threads_.size() < static_cast<size_t>(parts_.threads) && idle_ < jobs_.size()) {
    // Block signals, so that the program's own threads handle them; not those of a fault of the thread itself, which
    // would end the process before a handler that reports it.
    sigset_t all, before;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      threads_.emplace_back([this] { work(); });
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      if (!threads_.empty()) return;
      jobs_.pop_back();
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  jobs_come_.notify_one();
}

void RuntimeCompiler::work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      ++idle_;
      jobs_come_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      --idle_;
      if (ends_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    run(std::move(job));
  }
}

/// Compiles a kernel quickly. Returns false if it is still without code; then it must be compiled fully at once.
bool RuntimeCompiler::run_quickly(const Job& job) {
  if (!job.quick || job.kernel->is_waited_for_.load(std::memory_order_relaxed)) return false;
  try {
    const Compiled made = parts_.compile_quickly(job.source.text, job.key.architecture);
    if (made.cubin.empty()) return false;
    job.kernel->function_.store(parts_.load(made.cubin, job.source.name, job.device), std::memory_order_release);
    return true;
  } catch (const std::exception&) {
    return false;  // the full compilation reports what is wrong
  }
}

/// Throws nothing: the thread would end the process.
void RuntimeCompiler::run(Job job) {
  if (run_quickly(job) && !job.kernel->is_waited_for_.load(std::memory_order_relaxed)) {
    job.quick = false;
    try {
      return enqueue(job);
    } catch (const std::exception&) {
      // There is no memory for another job, so this thread goes on with it.
    }
  }
  std::string cubin, why;
  try {
    if (job.kernel == nullptr) {
      parts_.compile("__global__ void warm_up() {}", "sm_90");
      return;
    }
    Compiled made = parts_.compile(job.source.text, job.key.architecture);
    if (!made.cubin.empty()) load(job, made.cubin);
    cubin = std::move(made.cubin);
    why = std::move(made.log);
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (job.kernel == nullptr) return;  // the first compilation reports what is wrong
  try {
    if (cubin.empty() && job.kernel->function() != nullptr)
      job.kernel->finish(RuntimeKernel::State::ready, nullptr, {});
    else if (cubin.empty())
      refuse(job.source, *job.kernel, why);
    else
      cache_.put(job.key, std::move(cubin));
  } catch (...) {
    // An event handler threw, or there is no memory. The kernel has its state.
  }
}

/// Reports by an event that a kernel could not be compiled.
void RuntimeCompiler::refuse(const KernelSource& source, RuntimeKernel& kernel, const std::string& why) {
  struct Finish {
    RuntimeKernel& kernel;
    const std::string& why;
    ~Finish() { kernel.finish(RuntimeKernel::State::refused, nullptr, why); }
  } finish{kernel, why};
  const std::string path = write_refused(source.text);
  events::emit(events::Kind::warning, "compile",
               fmt::format("{} could not be compiled, so its operators run one by one; its source is in {}: {}",
                           source.name, path.empty() ? "no file" : path, why));
}

/// Returns false if the kernel is not in the cache, or cannot be loaded; then it must be compiled.
bool RuntimeCompiler::load_cached(const Job& job) {
  const KernelCache::Binary cubin = cache_.find(job.key);
  if (cubin == nullptr) return false;
  try {
    load(job, *cubin);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void RuntimeCompiler::load(const Job& job, const std::string& cubin) const {
  job.kernel->finish(RuntimeKernel::State::ready, parts_.load(cubin, job.source.name, job.device), {});
}

void RuntimeCompiler::end() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    left.swap(jobs_);
  }
  jobs_come_.notify_all();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  for (const Job& job : left)
    if (job.kernel != nullptr) job.kernel->finish(RuntimeKernel::State::refused, nullptr, "the process ends");
}

}  // namespace lorry::kernels::cuda
