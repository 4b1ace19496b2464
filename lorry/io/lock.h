#pragma once

// A lock file, for one process at a time. The lock is the operating system's, on an open file, so it ends with its
// process in any case. The text of the file says which process holds it.

#include <filesystem>
#include <optional>
#include <string>

#include "lorry/io/file.h"

namespace lorry::io {

/// Holds the lock during its lifetime and removes the file at the end. A file left by a killed process does no harm.
class FileLock {
 public:
  /// Creates `path` if it does not exist. Throws IoError if the file cannot be created, if it exists and is not a lock,
  /// and if another process holds the lock (the message has its number and host). On a file system without locks it
  /// locks nothing.
  explicit FileLock(std::filesystem::path path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

/// The holder of the lock `path`: "process 123 on host". None if nobody holds it, even if a killed process left the
/// file. The folder may be read-only. A process that tries to take the lock at the same moment may be refused. Throws
/// IoError if the file cannot be read.
std::optional<std::string> lock_holder(const std::filesystem::path& path);

}  // namespace lorry::io
