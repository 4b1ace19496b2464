#pragma once

// One process at a time. The lock is the system's, on an open file, so it ends with its process however that ends; the
// file's text says who holds it.

#include <filesystem>
#include <optional>
#include <string>

#include "lorry/io/file.h"

namespace lorry::io {

/// Held while it lives. The file is removed at the end; one that a killed process left does no harm.
class FileLock {
 public:
  /// Makes `path` where it is absent. Throws IoError where the file cannot be made or is there and is no lock, and
  /// where another process holds the lock: it is named by its number and its host. A file system without locks locks
  /// nothing.
  explicit FileLock(std::filesystem::path path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

/// Who holds the lock `path`: "process 123 on host". Nothing where nobody does, also when a killed process left the
/// file. The folder may be one that cannot be written. A process that takes the lock in the very moment of asking may
/// be refused. Throws IoError for a file that cannot be read.
std::optional<std::string> lock_holder(const std::filesystem::path& path);

}  // namespace lorry::io
