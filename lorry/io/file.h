#pragma once

// Reading files that may be hostile, and writing files in a way that may fail at any point. Reading maps a regular
// file. Writing uses a temporary name next to the final one and renames once everything is on the disk. Invariant: a
// file under its final name is always complete, old or new, whatever fails and whenever the process dies.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lorry::io {

/// Throws IoError "<doing> '<path>': <the operating system's message>".
[[noreturn]] void raise_io(std::string_view doing, const std::filesystem::path& path, int error);

/// An open file descriptor, closed at the end of its scope.
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
  /// Closes now. Returns false, with errno set, if the system reports a lost write.
  bool close() noexcept;

 private:
  int fd_ = -1;
};

/// A regular file mapped into memory. The mapping is private: writing to it copies the page and never changes the file.
/// It stays valid if the file is replaced by a rename, which is how this room writes. If another program truncates the
/// file, accessing the mapping faults, as for every mapping.
class MappedFile {
 public:
  /// Throws IoError if `path` is missing, unreadable or not a regular file (a directory, a FIFO, a device).
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

/// The contents of a small regular file. Throws IoError like MappedFile, and if it has more than `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::size_t limit);

/// Writes a file under a temporary name; `commit` flushes it to the disk and renames it to the final name. If it is
/// destroyed without a commit, it removes what it wrote. Every failure (full disk, no permission, a directory with that
/// name) is an IoError. Only a regular file or an absent name is replaced. For a symbolic link, the file that it leads
/// to is replaced or created. A FIFO or a device is written to directly: each `write` reaches it at once.
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
  std::filesystem::path path_, staged_;  ///< staged_ is empty if the file is written to directly
  Descriptor file_;
};

/// A directory of files, written under a temporary name. Fill `path()`, then `commit`: the directory gets the final
/// name and replaces a previous directory of the same kind. Its files must already be on the disk (AtomicFile does
/// this).
///
/// If the file system supports it, replacement exchanges the two names in one step. Otherwise the old directory is
/// first renamed to ".<name>.previous", and `recover` (or `find`) restores it if the process dies in between. Only
/// directories that contain nothing but `known_files` are replaced or cleaned up, so that a mistyped name can never
/// delete anything else.
class AtomicDirectory {
 public:
  AtomicDirectory(std::filesystem::path path, std::span<const std::string_view> known_files);
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory();

  const std::filesystem::path& path() const { return staged_; }
  void commit();

  /// The newest complete directory: `path`, or, after a crash between the two renames, its renamed predecessor. Returns
  /// `path` if neither exists; opening it then fails.
  static std::filesystem::path find(const std::filesystem::path& path);

 private:
  std::filesystem::path path_, previous_, staged_;
  std::span<const std::string_view> known_files_;
  Descriptor lock_;
};

/// Flushes a directory's entries to the disk.
void sync_directory(const std::filesystem::path& path);

}  // namespace lorry::io
