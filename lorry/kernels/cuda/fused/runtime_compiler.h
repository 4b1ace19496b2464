#pragma once

// Kernels that are compiled while the program goes on: by a few threads in the background, from the cache where it has
// them (kernel_cache.h). Whoever wants one asks whether it is ready, and does without until it is.

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

/// A source whose one kernel, `name`, is extern "C".
struct KernelSource {
  std::string name, text;
};

/// "sm_90"
std::string architecture_of(int device);

class RuntimeKernel {
 public:
  /// What launches take (device/cuda/launch.h); null: not compiled yet, or refused.
  const void* function() const { return function_.load(std::memory_order_acquire); }
  /// Returns when it is compiled or refused.
  void wait() const;
  /// Why it never will be ready; empty where it is or may be.
  std::string refused() const;

 private:
  friend class RuntimeCompiler;
  enum class State : uint8_t { waiting, ready, refused };
  void finish(State state, const void* function, std::string why);

  std::atomic<const void*> function_{nullptr};
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  State state_ = State::waiting;
  std::string refused_;
};

/// Thread-safe. Destruction waits for what is being compiled and leaves the rest uncompiled.
class RuntimeCompiler {
 public:
  /// A cubin to a function of a device. Throws where it cannot be loaded.
  using Load = std::function<const void*(const std::string& cubin, const std::string& name, int device)>;
  using Compile = std::function<Compiled(const std::string& source, const std::string& architecture)>;
  struct Parts {
    Compile compile;
    Load load;
    std::string compiler;  ///< name and version, for the cache
    int threads = 1;
  };

  RuntimeCompiler(Parts parts, KernelCache& cache) : parts_(std::move(parts)), cache_(cache) {}
  ~RuntimeCompiler() { end(); }
  RuntimeCompiler(const RuntimeCompiler&) = delete;
  RuntimeCompiler& operator=(const RuntimeCompiler&) = delete;

  /// That of this process: NVRTC, the user's cache, and a thread for two processors, at most four.
  static RuntimeCompiler& get();

  /// The kernel of a source, on a device of an architecture ("sm_90"): the same one for equal sources. It is ready at
  /// once where the cache has it; otherwise it is compiled in the background. A kernel that is refused is told by one
  /// warning event, which names the file that holds its source.
  std::shared_ptr<const RuntimeKernel> kernel(const KernelSource& source, const std::string& architecture, int device);
  /// Lets the background prepare what the first compilation needs, unless the cache's folder has kernels: then there
  /// may be nothing to compile, and to open NVRTC would take longer than to load them.
  void warm_up();
  /// Waits for what is being compiled, and leaves the rest uncompiled from now on.
  void end();

 private:
  struct Job {
    KernelSource source;
    KernelKey key;
    int device;
    std::shared_ptr<RuntimeKernel> kernel;  ///< null: nothing but warm up
  };

  void enqueue(Job job);
  void work();
  void run(const Job& job);
  bool load_cached(const Job& job);
  void load(const Job& job, const std::string& cubin) const;

  const Parts parts_;
  KernelCache& cache_;
  std::mutex mutex_;
  std::condition_variable jobs_come_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  bool ends_ = false, warm_ = false;
  std::unordered_map<std::string, std::shared_ptr<RuntimeKernel>> kernels_;  ///< by source and device
};

}  // namespace lorry::kernels::cuda
