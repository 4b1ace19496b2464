#pragma once

// Files that Lorry caches between processes: compiled kernels, measured ceilings. They lie in one folder of the user.
// Invariant: a file is read only if no other user could have written it, and is either there completely or not at all.
// Its contents are not checked here: whoever reads a file expects anything in it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lorry {

/// The folder of cached files: $LORRY_CACHE_DIR, else $XDG_CACHE_HOME/lorry, else ~/.cache/lorry. None if
/// LORRY_CACHE_DIR is empty or "off", or if no absolute folder is known. Throws ValueError if LORRY_CACHE_DIR is
/// relative, because a program that changes its working directory would have many caches.
std::optional<std::filesystem::path> cache_folder();

/// FNV-1a, 64 bits. Detects damage and names files. It protects against nobody: a file's owner and mode do.
uint64_t fnv(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325);

/// An open folder that only its user can access (mode 0700).
class PrivateFolder {
 public:
  enum class IfAbsent { fail, make };
  /// Opens the folder. If it cannot be opened or is not private, is_open() is false and error() says why.
  explicit PrivateFolder(const std::filesystem::path& path, IfAbsent absent = IfAbsent::fail);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  bool is_open() const { return number_ >= 0; }
  /// The value of errno; EPERM for a folder that is not private.
  int error() const { return error_; }
  int number() const { return number_; }

  /// A whole file, which is marked as used. None if it does not exist, has more than `most` bytes, or is not a regular
  /// file of this user with mode 0600.
  std::optional<std::string> read(const std::string& name, uint64_t most) const;
  /// Writes a temporary file and renames it. Returns 0 or the value of errno. A process that ends before the renaming
  /// leaves a file whose name ends with kStaged; remove_staged removes it.
  int write(const std::string& name, std::string_view bytes) const;
  /// Removes temporary files that have not been written for ten minutes.
  void remove_staged() const;

  static constexpr std::string_view kStaged = ".staged";

 private:
  int number_ = -1, error_ = 0;
};

/// Why error() occurred: "it must be a folder of this user with mode 0700", or the system's message.
std::string why_not_usable(int error);

}  // namespace lorry
