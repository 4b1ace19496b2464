#pragma once

// Compiled kernels, in memory and in a folder of the user, so that a kernel is compiled once a machine.
//
// Invariant: find() returns exactly the bytes that put() was given for an equal key, or nothing. A file holds its whole
// key and a checksum of all that it holds; one that is damaged, or that another user could have written, is ignored.
// A folder that cannot be read or written costs compilations and one warning event, never an error.
//
// This room stores bytes. It needs neither a GPU nor NVRTC.

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

/// All that decides what a compilation gives.
struct KernelKey {
  std::string source;
  std::string architecture;  ///< "sm_90"
  std::string compiler;      ///< name and version
  std::string flags;
  uint32_t emitter_version = 0;

  /// The fields in one string; equal strings come from equal keys alone.
  std::string bytes() const;
};

/// The folder of compiled kernels: $LORRY_CACHE_DIR, else $XDG_CACHE_HOME/lorry, else ~/.cache/lorry. Nothing where
/// LORRY_CACHE_DIR is empty or "off", or where no absolute folder is known. Throws ValueError if LORRY_CACHE_DIR is
/// relative: a program that changes its folder would have many caches.
std::optional<std::filesystem::path> kernel_cache_folder();

class KernelCache {
 public:
  using Binary = std::shared_ptr<const std::string>;
  struct Limits {
    uint64_t memory_bytes = uint64_t{64} << 20;
    uint64_t disk_bytes = uint64_t{256} << 20;
  };

  /// folder: made at the first put(), with mode 0700; none: kernels stay in memory.
  explicit KernelCache(std::optional<std::filesystem::path> folder, Limits limits);
  explicit KernelCache(std::optional<std::filesystem::path> folder) : KernelCache(std::move(folder), Limits{}) {}
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The kernel of this key, or null. From any thread.
  Binary find(const KernelKey& key);
  /// Adds a kernel; one of the same key is replaced. The kernels used longest ago make room. From any thread.
  void put(const KernelKey& key, std::string binary);
  /// Whether the folder has kernels, of whatever key. From any thread.
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
  std::list<Entry> entries_;  ///< the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
  uint64_t bytes_in_memory_ = 0;
  bool warned_ = false;
};

}  // namespace lorry::kernels::cuda
