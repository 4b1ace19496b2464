#include "lorry/base/private_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <system_error>

#include "lorry/base/error.h"

namespace lorry {
namespace fs = std::filesystem;

namespace {

/// A temporary file that has not been written for this long was left by a process that has ended.
constexpr time_t kStagedSeconds = 600;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

/// Whether no other user can have written the file or folder.
bool is_private(const struct stat& facts) { return facts.st_uid == ::geteuid() && (facts.st_mode & 077) == 0; }

bool read_all(int file, std::string& to) {
  for (size_t done = 0; done < to.size();) {
    const ssize_t got = ::read(file, to.data() + done, to.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace

std::optional<fs::path> cache_folder() {
  if (const char* wanted = std::getenv("LORRY_CACHE_DIR")) {  // not env::text: empty differs from unset
    if (*wanted == '\0' || std::string_view(wanted) == "off") return std::nullopt;
    require<ValueError>(*wanted == '/',
                        "environment: LORRY_CACHE_DIR is not usable; got '{}'; expected an absolute folder, or 'off'",
                        wanted);
    return wanted;
  }
  // The XDG base directory specification: relative paths are ignored.
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches && *caches == '/') return fs::path(caches) / "lorry";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache" / "lorry";
  return std::nullopt;
}

uint64_t fnv(std::string_view bytes, uint64_t hash) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

PrivateFolder::PrivateFolder(const fs::path& path, IfAbsent absent) {
  if (absent == IfAbsent::make) {
    std::error_code ignored;  // ignored, because opening the folder reports what is missing
    fs::create_directories(path.parent_path(), ignored);
    ::mkdir(path.c_str(), 0700);
  }
  number_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat facts;
  if (number_ < 0) {
    error_ = errno;
  } else if (::fstat(number_, &facts) != 0) {
    error_ = errno;
  } else if (!is_private(facts)) {
    error_ = EPERM;
  }
  if (error_ == 0 || number_ < 0) return;
  ::close(number_);
  number_ = -1;
}

PrivateFolder::~PrivateFolder() {
  if (number_ >= 0) ::close(number_);
}

std::optional<std::string> PrivateFolder::read(const std::string& name, uint64_t most) const {
  // O_NONBLOCK: a FIFO of this name must not block.
  const Descriptor file(::openat(number_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts;
  if (!file.is_open() || ::fstat(file.number(), &facts) != 0) return std::nullopt;
  if (!S_ISREG(facts.st_mode) || !is_private(facts)) return std::nullopt;
  if (static_cast<uint64_t>(facts.st_size) > most) return std::nullopt;
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  if (!read_all(file.number(), bytes)) return std::nullopt;
  ::futimens(file.number(), nullptr);  // if the file system refuses, the file counts as unused
  return bytes;
}

int PrivateFolder::write(const std::string& name, std::string_view bytes) const {
  static std::atomic<uint64_t> count{0};
  const std::string staged = fmt::format("{}.{}.{}.{:x}{}", name, ::getpid(), count++, ::time(nullptr), kStaged);
  int error = 0;
  {
    const Descriptor file(
        ::openat(number_, staged.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.is_open()) return errno;
    if (!write_all(file.number(), bytes)) error = errno;
  }
  if (error == 0 && ::renameat(number_, staged.c_str(), number_, name.c_str()) != 0) error = errno;
  if (error != 0) ::unlinkat(number_, staged.c_str(), 0);
  return error;
}

void PrivateFolder::remove_staged() const {
  const int own = ::openat(number_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr) {
    if (own >= 0) ::close(own);
    return;
  }
  while (const dirent* entry = ::readdir(entries)) {
    struct stat facts;
    if (!std::string_view(entry->d_name).ends_with(kStaged)) continue;
    if (::fstatat(number_, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(facts.st_mode)) continue;
    if (facts.st_mtim.tv_sec + kStagedSeconds < ::time(nullptr)) ::unlinkat(number_, entry->d_name, 0);
  }
  ::closedir(entries);
}

std::string why_not_usable(int error) {
  return error == EPERM ? "it must be a folder of this user with mode 0700"
                        : std::error_code(error, std::generic_category()).message();
}

}  // namespace lorry
