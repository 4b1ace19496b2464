#pragma once

// Files that may be hostile or fail half-way. Reading maps a regular file; writing happens beside the final name and
// becomes visible by one rename after everything has reached the disk. Invariant: under its final name a file is always
// complete, the old one or the new one, whatever fails and whenever the process dies.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lorry::io {

/// Throws IoError "<doing> '<path>': <what the operating system said>".
[[noreturn]] void raise_io(std::string_view doing, const std::filesystem::path& path, int error);

/// An open descriptor, closed at the end of its scope.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) close(), fd_ = other.release();
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  /// Closes now; false, with errno set, when the system reports a lost write.
  bool close() noexcept;

 private:
  int fd_ = -1;
};

/// A regular file mapped into memory. The mapping is private: writing to it copies the page and never reaches the file.
/// It survives the replacement of the file by rename, which is how this room writes. A file that another program
/// truncates in place while it is mapped faults on access, as every mapping does.
class MappedFile {
 public:
  /// Throws IoError when `path` is missing, unreadable or not a regular file (a directory, a FIFO, a device).
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole of a small regular file. Throws IoError as MappedFile does, and when it has more than `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t limit);

/// Writes a file beside its final name; `commit` flushes it to the disk and renames it into place. Destroyed without a
/// commit, it removes what it wrote. Every failure (full disk, no permission, a directory in the way) is an IoError.
/// Only a regular file or an absent name is replaced. A symbolic link stays, and the file that it leads to is replaced
/// or made. A FIFO or a device is written through: each `write` reaches it at once.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_, staged_;  ///< staged_ is empty when the file is written through
  Descriptor file_;
};

/// A directory of files written beside its final name. Fill `path()`, then `commit`: the directory, whose files must
/// already be on the disk (AtomicFile sees to that), takes the final name, replacing a former directory of the same
/// kind.
///
/// Replacement exchanges the two names in one step where the file system can; elsewhere the old directory is first
/// set aside as ".<name>.previous", and `recover` (or `find`) brings it back if the process dies in between.
/// Only directories whose every entry is among `known_files` are replaced or cleaned up, so that a mistyped name can
/// never delete anything else.
class AtomicDirectory {
 public:
  AtomicDirectory(std::filesystem::path path, std::span<const std::string_view> known_files);
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory();

  const std::filesystem::path& path() const { return staged_; }
  void commit();

  /// Where the newest complete directory is: `path` itself or, after a crash between the two renames, its set-aside
  /// predecessor. Returns `path` when there is neither, for the caller's open to report.
  static std::filesystem::path find(const std::filesystem::path& path);

 private:
  std::filesystem::path path_, previous_, staged_;
  std::span<const std::string_view> known_files_;
  Descriptor lock_;
};

/// Flushes a directory's entries to the disk.
void sync_directory(const std::filesystem::path& path);

}  // namespace lorry::io
