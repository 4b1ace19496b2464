#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lorry/base/error.h"
#include "lorry/io/file.h"
#include "lorry/io/staging.h"

namespace lorry::io {
namespace fs = std::filesystem;

// ---- one file -------------------------------------------------------------------------------------------------------

namespace {

/// The name that a write replaces: the target of a symbolic link, so that the link stays. The target need not exist.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // the system's own limit
  path = writable_name(std::move(path));
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  if (fs::exists(path, error)) {
    fs::path target = fs::canonical(path, error);
    if (error) raise_io("cannot follow", path, error.value());
    return target;
  }
  for (int links = 0; fs::is_symlink(path, error); ++links) {
    if (links == kMostLinks) raise_io("cannot follow", path, ELOOP);
    const fs::path target = fs::read_symlink(path, error);
    if (error) raise_io("cannot follow", path, error.value());
    path = parent_of(path) / target;  // if the target is absolute, it replaces the parent
  }
  return path;
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(writable_name(std::move(path))) {
  struct stat facts;
  if (::stat(path_.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) raise_io("cannot write", path_, EISDIR);
    if (!S_ISREG(facts.st_mode)) {  // a rename would replace a device or a FIFO with a file
      file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
      if (!file_.is_open()) raise_io("cannot open", path_, errno);
      return;
    }
  }
  path_ = target_of(std::move(path_));
  for_each_leftover(path_, [](const fs::path& leftover) { ::unlink(leftover.c_str()); });
  file_ = stage(path_, /*directory=*/false, staged_);
}

AtomicFile::~AtomicFile() {
  if (file_.is_open() && !staged_.empty()) ::unlink(staged_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  // One call writes at most 2 GiB on Linux; smaller pieces can be interrupted sooner.
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(file_.get(), at, std::min(bytes, kPiece));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) raise_io("cannot write", path_, errno);
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  if (staged_.empty()) {
    if (!file_.close()) raise_io("cannot write", path_, errno);
    return;
  }
  // Without the flush, the rename may reach the disk before the data, and a crash would leave an empty file.
  if (::fsync(file_.get()) != 0) raise_io("cannot write", path_, errno);
  if (::rename(staged_.c_str(), path_.c_str()) != 0) raise_io("cannot write", path_, errno);
  if (!file_.close()) raise_io("cannot write", path_, errno);
  sync_directory(parent_of(path_));
}

// ---- a directory of files -------------------------------------------------------------------------------------------

namespace {

fs::path previous_of(const fs::path& path) {
  return parent_of(path) / fmt::format(".{}.previous", path.filename().string());
}

/// Whether it is a directory and not a link to one.
bool is_real_directory(const fs::path& path) {
  struct stat facts;
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

/// Whether a directory of `known` files may contain this name: a known file, or a temporary one of it.
bool is_known(const std::string& name, std::span<const std::string_view> known) {
  return std::ranges::any_of(known, [&](std::string_view k) { return name == k || is_staged_name(name, k); });
}

/// Throws IoError that names the first entry that a directory of `known` files would not contain.
void require_ours(const fs::path& path, std::span<const std::string_view> known) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    require<IoError>(is_known(entry->path().filename().string(), known) && !entry->is_directory(ignored),
                     "cannot replace '{}': it holds '{}', which no checkpoint has; choose another directory",
                     path.string(), entry->path().filename().string());
  if (error) raise_io("cannot list", path, error.value());
}

/// Removes known files from a directory, and then the directory if it is empty.
void remove_known(const fs::path& path, std::span<const std::string_view> known) {
  std::error_code error;  // what cannot be listed is not removed
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (is_known(entry->path().filename().string(), known)) ::unlink(entry->path().c_str());
  ::rmdir(path.c_str());
}

/// Exchanges two names in one step. Returns false if the file system does not support it.
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS || errno == EXDEV || errno == EOPNOTSUPP) return false;
  raise_io("cannot replace", b, errno);
}

void rename_directory(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) raise_io("cannot write", to, errno);
  sync_directory(parent_of(to));
}

}  // namespace

AtomicDirectory::AtomicDirectory(fs::path path, std::span<const std::string_view> known_files)
    : path_(target_of(std::move(path))), previous_(previous_of(path_)), known_files_(known_files) {
  // Complete a replacement that a crash interrupted: restore the renamed directory, or remove it if its successor
  // exists.
  if (is_real_directory(previous_)) {
    if (is_real_directory(path_)) {
      remove_known(previous_, known_files_);
    } else {
      rename_directory(previous_, path_);
    }
  }
  struct stat facts;
  if (::lstat(path_.c_str(), &facts) == 0) {
    if (!S_ISDIR(facts.st_mode)) raise_io("cannot replace", path_, ENOTDIR);
    require_ours(path_, known_files_);
  }
  for_each_leftover(path_, [this](const fs::path& leftover) { remove_known(leftover, known_files_); });
  lock_ = stage(path_, /*directory=*/true, staged_);
}

AtomicDirectory::~AtomicDirectory() {
  // After a commit by exchange, the temporary name is the old directory; without a commit, it is incomplete.
  if (lock_.is_open()) remove_known(staged_, known_files_);
}

void AtomicDirectory::commit() {
  sync_directory(staged_);
  if (!is_real_directory(path_)) {
    rename_directory(staged_, path_);
  } else if (exchange(staged_, path_)) {
    sync_directory(parent_of(path_));
    remove_known(staged_, known_files_);
  } else {
    rename_directory(path_, previous_);
    if (::rename(staged_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      ::rename(previous_.c_str(), path_.c_str());
      raise_io("cannot write", path_, error);
    }
    sync_directory(parent_of(path_));
    remove_known(previous_, known_files_);
  }
  lock_.close();
}

fs::path AtomicDirectory::find(const fs::path& path) {
  if (is_real_directory(path)) return path;
  std::error_code error;
  if (fs::exists(path, error)) return path;  // a symbolic link to a directory, or something that the caller refuses
  const fs::path previous = previous_of(writable_name(path));
  return is_real_directory(previous) ? previous : path;
}

}  // namespace lorry::io
