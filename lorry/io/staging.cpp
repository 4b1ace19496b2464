#include "lorry/io/staging.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "lorry/base/error.h"

namespace lorry::io {
namespace {

constexpr int kAttempts = 10'000;

std::string prefix_of(std::string_view name) { return fmt::format(".{}.staged-", name); }

}  // namespace

bool still_named(const Descriptor& open, const std::filesystem::path& name) {
  struct stat by_handle, by_name;
  return ::fstat(open.get(), &by_handle) == 0 && ::lstat(name.c_str(), &by_name) == 0 &&
         by_handle.st_ino == by_name.st_ino && by_handle.st_dev == by_name.st_dev;
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

std::filesystem::path writable_name(std::filesystem::path path) {
  // "runs/a/" names the same as "runs/a"
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  const std::string name = path.filename().string();
  require<IoError>(!name.empty() && name != "." && name != ".." && name != "/",
                   "cannot write '{}': it names no file or directory", path.string());
  return path;
}

bool is_staged_name(std::string_view name, std::string_view final_name) {
  const std::string prefix = prefix_of(final_name);
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789", prefix.size()) == name.npos;
}

Descriptor stage(const std::filesystem::path& path, bool directory, std::filesystem::path& staged) {
  const std::string prefix = prefix_of(path.filename().string());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    staged = parent_of(path) / fmt::format("{}{}", prefix, attempt);
    Descriptor open;
    if (directory) {
      if (::mkdir(staged.c_str(), 0777) == 0)
        open = Descriptor(::open(staged.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    } else {
      open = Descriptor(::open(staged.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    }
    if (!open.is_open()) {
      if (errno == EEXIST || errno == ENOENT) {
        if (errno == ENOENT && !std::filesystem::exists(parent_of(path))) raise_io("cannot create", path, ENOENT);
        continue;  // another writer's, or just removed
      }
      raise_io("cannot create", path, errno);
    }
    if (::flock(open.get(), LOCK_EX | LOCK_NB) == 0 && still_named(open, staged)) return open;
    // On a file system without locks nobody cleans up either, so the new name is ours.
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return open;
  }
  raise_io("cannot create", path, EEXIST);
}

void for_each_leftover(const std::filesystem::path& path,
                       const std::function<void(const std::filesystem::path&)>& remove) {
  const std::string name = path.filename().string();
  std::error_code ignored;  // cleaning up is optional: what cannot be listed or locked stays
  for (std::filesystem::directory_iterator entry(parent_of(path), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (!is_staged_name(entry->path().filename().string(), name)) continue;
    const Descriptor open(::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (open.is_open() && ::flock(open.get(), LOCK_EX | LOCK_NB) == 0) remove(entry->path());
  }
}

}  // namespace lorry::io
