#pragma once

// Compiled kernels, in memory and in a folder of the user, so that a kernel is compiled once per machine.
//
// Invariant: find() returns the bytes that put() stored for an equal key, or nothing. A file contains its whole key and
// a checksum of all its contents. Files that are damaged, or that another user could have written, are ignored. If the
// folder cannot be read or written, kernels are compiled again and one warning event is emitted; it is never an error.
//
// The cache stores bytes. It needs neither a GPU nor NVRTC.

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lorry::kernels::cuda {

/// Everything that determines the result of a compilation.
struct KernelKey {
  std::string source;
  std::string architecture;  ///< "sm_90"
  std::string compiler;      ///< name and version
  std::string flags;
  uint32_t emitter_version = 0;

  /// The fields as one string; different keys have different strings.
  std::string bytes() const;
};

class KernelCache {
 public:
  using Binary = std::shared_ptr<const std::string>;
  struct Limits {
    uint64_t memory_bytes = uint64_t{64} << 20;
    uint64_t disk_bytes = uint64_t{256} << 20;
  };

  /// folder: created at the first put(), with mode 0700. None: kernels are cached in memory only.
  explicit KernelCache(std::optional<std::filesystem::path> folder, Limits limits);
  explicit KernelCache(std::optional<std::filesystem::path> folder) : KernelCache(std::move(folder), Limits{}) {}
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The kernel with this key, or null. Thread-safe.
  Binary find(const KernelKey& key);
  /// Adds a kernel, or replaces the one with the same key. If the cache is full, the least recently used kernels are
  /// removed. Thread-safe.
  void put(const KernelKey& key, std::string binary);
  /// Whether the folder contains any kernel. Thread-safe.
  bool has_files() const;

 private:
  struct Entry {
    std::string key;
    Binary binary;
  };

  Binary find_in_memory(const std::string& key);
  void put_in_memory(const std::string& key, Binary binary);
  Binary read(const std::string& key);
  void write(const std::string& key, std::string_view binary);
  void warn_once(std::string_view what, int error);

  const std::optional<std::filesystem::path> folder_;
  const Limits limits_;
  std::mutex mutex_;
  std::list<Entry> entries_;  ///< most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  uint64_t bytes_in_memory_ = 0;
  bool warned_ = false;
};

}  // namespace lorry::kernels::cuda
