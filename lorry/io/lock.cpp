#include "lorry/io/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "lorry/base/error.h"
#include "lorry/io/staging.h"

namespace lorry::io {
namespace {

constexpr std::size_t kLongestHolder = 512;
constexpr std::string_view kProcess = "process ";

/// "process 123 on host" for this process.
std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("{}{} on {}", kProcess, ::getpid(), host.data());
}

/// The text that the holder has written; it may be empty because the holder is about to write it.
std::string holder(const Descriptor& file) {
  std::array<char, kLongestHolder> text;
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "another process";
}

}  // namespace

FileLock::FileLock(std::filesystem::path path) : path_(std::move(path)) {
  for (;;) {
    file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (!file_.is_open()) raise_io("cannot lock", path_, errno);
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      require<IoError>(errno != EWOULDBLOCK, "'{}' is locked by {}; expected one process at a time; wait for its end",
                       path_.string(), holder(file_));
      if (errno == EINTR) continue;
      if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) raise_io("cannot lock", path_, errno);
      break;
    }
    if (still_named(file_, path_)) break;  // otherwise the previous holder has removed the file meanwhile
  }
  // Do not change a file that is not a lock.
  struct stat facts;
  if (::fstat(file_.get(), &facts) != 0) raise_io("cannot lock", path_, errno);
  require<IoError>(S_ISREG(facts.st_mode) && (facts.st_size == 0 || holder(file_).starts_with(kProcess)),
                   "cannot lock '{}': the file is there and is no lock; move it away", path_.string());
  const std::string text = this_process();
  if (::ftruncate(file_.get(), 0) != 0 || ::pwrite(file_.get(), text.data(), text.size(), 0) < 0)
    raise_io("cannot write", path_, errno);
}

FileLock::~FileLock() { ::unlink(path_.c_str()); }

std::optional<std::string> lock_holder(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  if (!file.is_open()) raise_io("cannot read", path, errno);
  if (::flock(file.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
  return holder(file);
}

}  // namespace lorry::io
