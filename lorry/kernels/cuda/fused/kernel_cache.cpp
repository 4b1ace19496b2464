#include "lorry/kernels/cuda/fused/kernel_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/base/events.h"
#include "lorry/base/private_folder.h"

namespace lorry::kernels::cuda {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMagic = "lorry kernel 1\n";
constexpr std::string_view kSuffix = ".kernel";

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

/// A file's name is two hashes of its key. Keys with the same name replace each other; a file contains its key.
std::string name_of(std::string_view key) {
  return fmt::format("{:016x}{:016x}{}", fnv(key), fnv(key, 0x9e3779b97f4a7c15), kSuffix);
}

/// Removes the least recently used files beyond `most` bytes.
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
    struct stat facts;
    if (!name.ends_with(kSuffix)) continue;
    if (::fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(facts.st_mode)) continue;
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
  const PrivateFolder folder(*folder_);
  if (!folder.is_open()) {
    if (folder.error() != ENOENT) warn_once("cannot be used", folder.error());
    return nullptr;
  }
  const std::optional<std::string> bytes = folder.read(name_of(key), limits_.disk_bytes);
  const auto binary = bytes ? binary_in(*bytes, key) : std::nullopt;
  return binary ? std::make_shared<const std::string>(*binary) : nullptr;
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
  const PrivateFolder folder(*folder_, PrivateFolder::IfAbsent::make);
  if (!folder.is_open()) return warn_once("cannot be used", folder.error());
  if (const int error = folder.write(name_of(key), bytes); error != 0) return warn_once("cannot be written", error);
  folder.remove_staged();
  trim(folder.number(), limits_.disk_bytes);
}

void KernelCache::warn_once(std::string_view what, int error) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(warned_, true)) return;
  }
  events::emit(events::Kind::warning, "kernel cache",
               fmt::format("'{}' {}: {}; kernels are compiled again in each process", folder_->string(), what,
                           why_not_usable(error)));
}

}  // namespace lorry::kernels::cuda
