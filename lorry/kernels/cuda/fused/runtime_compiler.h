#pragma once

// Kernels compiled while the program runs: by a few background threads, or loaded from the cache (kernel_cache.h).
// Callers ask whether a kernel is ready and use other kernels until it is.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lorry/kernels/cuda/fused/kernel_cache.h"
#include "lorry/kernels/cuda/fused/nvrtc.h"

namespace lorry::kernels::cuda {

/// A source with one extern "C" kernel, `name`.
struct KernelSource {
  std::string name, text;
};

/// "sm_90"
std::string architecture_of(int device);
/// The flags of NVRTC: those of Lorry's own kernels, so that formulas give the same bits.
std::vector<std::string> nvrtc_flags(const std::string& architecture);

class RuntimeKernel {
 public:
  /// The function to launch (device/cuda/launch.h); null if it is not compiled yet, or could not be. A function that
  /// was compiled quickly is followed by another one; both stay loaded.
  const void* function() const { return function_.load(std::memory_order_acquire); }
  /// Says that somebody will wait: a kernel that is not being compiled yet is then compiled once, fully.
  void will_wait() const { is_waited_for_.store(true, std::memory_order_relaxed); }
  /// Waits until it is fully compiled or has failed to compile.
  void wait() const;
  /// Why it could not be compiled; empty if it is or may still be.
  std::string refused() const;

 private:
  friend class RuntimeCompiler;
  enum class State : uint8_t { waiting, ready, refused };
  void finish(State state, const void* function, std::string why);

  std::atomic<const void*> function_{nullptr};
  mutable std::atomic<bool> is_waited_for_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  State state_ = State::waiting;
  std::string refused_;
};

/// Thread-safe. Destruction waits for running compilations; others are dropped.
class RuntimeCompiler {
 public:
  /// Loads a cubin and returns its function for a device. Throws if it cannot be loaded.
  using Load = std::function<const void*(const std::string& cubin, const std::string& name, int device)>;
  using Compile = std::function<Compiled(const std::string& source, const std::string& architecture)>;
  struct Parts {
    Compile compile;
    Load load;
    std::string compiler;  ///< name and version, for the cache
    int threads = 1;
    /// Compiles in less time, to slower code that is used until `compile` has made better. Null: there is no such way.
    Compile compile_quickly;
  };

  RuntimeCompiler(Parts parts, KernelCache& cache) : parts_(std::move(parts)), cache_(cache) {}
  ~RuntimeCompiler() { end(); }
  RuntimeCompiler(const RuntimeCompiler&) = delete;
  RuntimeCompiler& operator=(const RuntimeCompiler&) = delete;

  /// The process's compiler: NVRTC, the user's cache, and one thread per two processors, at most four.
  static RuntimeCompiler& get();

  /// The kernel of a source for a device of an architecture ("sm_90"). Equal sources give the same object. It is ready
  /// at once if it is in the cache; otherwise it is compiled in the background: first quickly, unless somebody waits
  /// for it, then fully. A kernel that cannot be compiled is reported by one warning event, which names a file with
  /// its source.
  std::shared_ptr<const RuntimeKernel> kernel(const KernelSource& source, const std::string& architecture, int device);
  /// Prepares the first compilation in the background, unless the cache's folder contains kernels: then there may be
  /// nothing to compile, and opening NVRTC would take longer than loading them.
  void warm_up();
  /// Waits for running compilations; everything else is never compiled.
  void end();

 private:
  struct Job {
    KernelSource source;
    KernelKey key;
    int device;
    std::shared_ptr<RuntimeKernel> kernel;  ///< null: only prepare the compiler
    bool quick = false;
  };

  void enqueue(Job job);
  void work();
  void run(Job job);
  bool run_quickly(const Job& job);
  static void refuse(const KernelSource& source, RuntimeKernel& kernel, const std::string& why);
  bool load_cached(const Job& job);
  void load(const Job& job, const std::string& cubin) const;

  const Parts parts_;
  KernelCache& cache_;
  std::mutex mutex_;
  std::condition_variable jobs_come_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;  ///< threads that wait for jobs
  bool ends_ = false, warm_ = false;
  std::unordered_map<std::string, std::shared_ptr<RuntimeKernel>> kernels_;  ///< by source and device
};

}  // namespace lorry::kernels::cuda
