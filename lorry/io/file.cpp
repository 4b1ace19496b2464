#include "lorry/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lorry/base/error.h"

namespace lorry::io {
namespace {

/// Opens a file for reading without waiting for a FIFO's writer, and refuses anything but a regular file.
Descriptor open_regular(const std::filesystem::path& path, std::size_t& size) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) raise_io("cannot open", path, errno);
  struct stat facts;
  if (::fstat(file.get(), &facts) != 0) raise_io("cannot examine", path, errno);
  if (S_ISDIR(facts.st_mode)) raise_io("cannot read", path, EISDIR);
  require<IoError>(S_ISREG(facts.st_mode), "cannot read '{}': it is not a regular file", path.string());
  size = static_cast<std::size_t>(facts.st_size);
  return file;
}

}  // namespace

void raise_io(std::string_view doing, const std::filesystem::path& path, int error) {
  raise<IoError>("{} '{}': {}", doing, path.string(), std::generic_category().message(error));
}

bool Descriptor::close() noexcept {
  const int fd = release();
  return fd < 0 || ::close(fd) == 0;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file = open_regular(path, size_);
  if (size_ == 0) return;  // an empty range cannot be mapped
  void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (mapped == MAP_FAILED) raise_io("cannot map", path, errno);
  data_ = static_cast<std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

std::string read_text(const std::filesystem::path& path, std::size_t limit) {
  std::size_t size = 0;
  const Descriptor file = open_regular(path, size);
  require<IoError>(size <= limit, "cannot read '{}': it has {} bytes; expected at most {}", path.string(), size, limit);
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file.get(), text.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) raise_io("cannot read", path, errno);
    if (got == 0) break;  // the file has shrunk since it was opened
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

void sync_directory(const std::filesystem::path& path) {
  const Descriptor directory(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) raise_io("cannot open directory", path, errno);
  // Some network file systems cannot flush a directory and return EINVAL; nothing more can be done there.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) raise_io("cannot flush directory", path, errno);
}

}  // namespace lorry::io
