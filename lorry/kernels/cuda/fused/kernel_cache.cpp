#include "lorry/kernels/cuda/fused/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <utility>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/base/events.h"

namespace lorry::kernels::cuda {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "lorry kernel 1\n";
constexpr std::string_view kSuffix = ".kernel", kStagedSuffix = ".staged";
/// A temporary file that has not been written for this long was left by a process that has ended.
constexpr time_t kStagedSeconds = 600;

/// FNV-1a, 64 bits. It detects damage and names files. It is no protection: that is the file's owner and mode.
uint64_t fnv(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

void append(std::string& to, uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) to.push_back(static_cast<char>(number >> shift));
}

void append(std::string& to, std::string_view text) {
  append(to, uint64_t{text.size()});
  to += text;
}

uint64_t number_at(std::string_view bytes) {
  uint64_t number = 0;
  for (int i = 7; i >= 0; --i) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

/// Removes a text from the front of `bytes`; none if it is incomplete.
std::optional<std::string_view> take_text(std::string_view& bytes) {
  if (bytes.size() < 8) return std::nullopt;
  const uint64_t size = number_at(bytes);
  bytes.remove_prefix(8);
  if (size > bytes.size()) return std::nullopt;
  const std::string_view text = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return text;
}

/// The contents of a file: magic, key, binary, checksum of everything before it.
std::string file_of(std::string_view key, std::string_view binary) {
  std::string file(kMagic);
  append(file, key);
  append(file, binary);
  append(file, fnv(file));
  return file;
}

/// The binary in a file; none if the file is damaged or has another key.
std::optional<std::string_view> binary_in(std::string_view file, std::string_view key) {
  if (file.size() < kMagic.size() + 8 || !file.starts_with(kMagic)) return std::nullopt;
  if (number_at(file.substr(file.size() - 8)) != fnv(file.substr(0, file.size() - 8))) return std::nullopt;
  file.remove_suffix(8);
  file.remove_prefix(kMagic.size());
  const auto held = take_text(file);
  if (!held || *held != key) return std::nullopt;
  const auto binary = take_text(file);
  return binary && file.empty() ? binary : std::nullopt;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
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

/// Opens the folder if it is private. Otherwise the result is not open and errno is set.
Descriptor open_folder(const fs::path& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat facts;
  if (!folder.is_open() || ::fstat(folder.number(), &facts) != 0) return Descriptor(-1);
  if (is_private(facts)) return folder;
  errno = EPERM;
  return Descriptor(-1);
}

Descriptor make_folder(const fs::path& path) {
  std::error_code ignored;  // ignored, because opening the folder reports what is missing
  fs::create_directories(path.parent_path(), ignored);
  ::mkdir(path.c_str(), 0700);
  return open_folder(path);
}

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

/// A file's name is two hashes of its key. Keys with the same name replace each other; a file contains its key.
std::string name_of(std::string_view key) {
  return fmt::format("{:016x}{:016x}{}", fnv(key), fnv(key, 0x9e3779b97f4a7c15), kSuffix);
}

/// Removes temporary files of processes that have ended, and the least recently used files beyond `most` bytes.
void trim(int folder, uint64_t most) {
  const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = own < 0 ? nullptr : ::fdopendir(own);
  if (entries == nullptr) {
    if (own >= 0) ::close(own);
    return;
  }
  struct File {
    timespec used;
    uint64_t size;
    std::string name;
  };
  std::vector<File> files;
  uint64_t total = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    const bool staged = name.ends_with(kStagedSuffix);
    struct stat facts;
    if (!staged && !name.ends_with(kSuffix)) continue;
    if (::fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(facts.st_mode)) continue;
    if (staged) {
      if (facts.st_mtim.tv_sec + kStagedSeconds < ::time(nullptr)) ::unlinkat(folder, entry->d_name, 0);
      continue;
    }
    total += static_cast<uint64_t>(facts.st_size);
    files.push_back({facts.st_mtim, static_cast<uint64_t>(facts.st_size), std::string(name)});
  }
  ::closedir(entries);
  if (total <= most) return;
  std::ranges::sort(files, {}, [](const File& file) { return std::pair(file.used.tv_sec, file.used.tv_nsec); });
  for (const File& file : files) {
    if (total <= most) return;
    ::unlinkat(folder, file.name.c_str(), 0);
    total -= file.size;
  }
}

}  // namespace

std::string KernelKey::bytes() const {
  std::string all;
  append(all, uint64_t{emitter_version});
  for (const std::string& field : {architecture, compiler, flags, source}) append(all, std::string_view(field));
  return all;
}

std::optional<fs::path> kernel_cache_folder() {
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

KernelCache::KernelCache(std::optional<fs::path> folder, Limits limits) : folder_(std::move(folder)), limits_(limits) {}

KernelCache::Binary KernelCache::find(const KernelKey& key) {
  const std::string bytes = key.bytes();
  if (Binary binary = find_in_memory(bytes)) return binary;
  if (!folder_) return nullptr;
  Binary binary = read(bytes);
  if (binary) put_in_memory(bytes, binary);
  return binary;
}

void KernelCache::put(const KernelKey& key, std::string binary) {
  const std::string bytes = key.bytes();
  const auto shared = std::make_shared<const std::string>(std::move(binary));
  put_in_memory(bytes, shared);
  if (folder_) write(bytes, *shared);
}

// ---- in memory ------------------------------------------------------------------------------------------------------

KernelCache::Binary KernelCache::find_in_memory(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->binary;
}

void KernelCache::put_in_memory(const std::string& key, Binary binary) {
  const std::scoped_lock lock(mutex_);
  const auto drop = [&](std::list<Entry>::iterator one) {
    bytes_in_memory_ -= one->key.size() + one->binary->size();
    by_key_.erase(one->key);
    entries_.erase(one);
  };
  if (const auto found = by_key_.find(key); found != by_key_.end()) drop(found->second);
  bytes_in_memory_ += key.size() + binary->size();
  entries_.push_front({key, std::move(binary)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  while (bytes_in_memory_ > limits_.memory_bytes) drop(std::prev(entries_.end()));
}

// ---- on disk --------------------------------------------------------------------------------------------------------

KernelCache::Binary KernelCache::read(const std::string& key) {
  const Descriptor folder = open_folder(*folder_);
  if (!folder.is_open()) {
    if (errno != ENOENT) warn_once("cannot be used", errno);
    return nullptr;
  }
  // O_NONBLOCK: a FIFO of this name must not block.
  const Descriptor file(
      ::openat(folder.number(), name_of(key).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts;
  if (!file.is_open() || ::fstat(file.number(), &facts) != 0) return nullptr;
  if (!S_ISREG(facts.st_mode) || !is_private(facts)) return nullptr;
  if (static_cast<uint64_t>(facts.st_size) > limits_.disk_bytes) return nullptr;
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  if (!read_all(file.number(), bytes)) return nullptr;
  const auto binary = binary_in(bytes, key);
  if (!binary) return nullptr;
  ::futimens(file.number(), nullptr);  // marks it as used; if the file system refuses, the file is removed earlier
  return std::make_shared<const std::string>(*binary);
}

bool KernelCache::has_files() const {
  if (!folder_) return false;
  std::error_code error;  // an unreadable folder counts as empty
  for (fs::directory_iterator files(*folder_, error), end; !error && files != end; files.increment(error))
    if (files->path().native().ends_with(kSuffix)) return true;
  return false;
}

void KernelCache::write(const std::string& key, std::string_view binary) {
  const std::string bytes = file_of(key, binary);
  if (bytes.size() > limits_.disk_bytes) return;
  const Descriptor folder = make_folder(*folder_);
  if (!folder.is_open()) return warn_once("cannot be used", errno);
  static std::atomic<uint64_t> count{0};
  const std::string name = name_of(key);
  const std::string staged = fmt::format("{}.{}.{}.{:x}{}", name, ::getpid(), count++, ::time(nullptr), kStagedSuffix);
  int error = 0;
  {
    const Descriptor file(
        ::openat(folder.number(), staged.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.is_open()) return warn_once("cannot be written", errno);
    if (!write_all(file.number(), bytes)) error = errno;
  }
  if (error == 0 && ::renameat(folder.number(), staged.c_str(), folder.number(), name.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlinkat(folder.number(), staged.c_str(), 0);
    return warn_once("cannot be written", error);
  }
  trim(folder.number(), limits_.disk_bytes);
}

void KernelCache::warn_once(std::string_view what, int error) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(warned_, true)) return;
  }
  const std::string why = error == EPERM ? "it must be a folder of this user with mode 0700"
                                         : std::error_code(error, std::generic_category()).message();
  events::emit(events::Kind::warning, "kernel cache",
               fmt::format("'{}' {}: {}; kernels are compiled again in each process", folder_->string(), what, why));
}

}  // namespace lorry::kernels::cuda
