#include "lorry/io/shared_safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lorry/base/modes.h"

namespace lorry::io {

SharedSafetensors::SharedSafetensors(std::filesystem::path path, const TensorMap& tensors, const Metadata& metadata,
                                     bool creates)
    : path_(std::move(path)), entries_(safetensors_entries(tensors)) {
  const std::string header = format_safetensors_header(entries_, metadata);
  if (creates) {
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_.is_open()) raise_io("cannot create", path_, errno);
    write_at(0, header.data(), header.size());
    const uint64_t size = entries_.empty() ? header.size() : entries_.back().end;
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) raise_io("cannot write", path_, errno);
  } else {
    file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_.is_open()) raise_io("cannot open", path_, errno);
    std::string there(header.size(), '\0');
    const ssize_t got = ::pread(file_.get(), there.data(), there.size(), 0);
    require<IoError>(got == static_cast<ssize_t>(header.size()) && there == header,
                     "cannot write '{}': it was created for other tensors than this process has", path_.string());
  }
  std::ranges::sort(entries_, {}, &SafetensorsEntry::name);
}

void SharedSafetensors::write(const std::string& name, int64_t first, const Tensor& elements) {
  const auto entry = std::ranges::lower_bound(entries_, name, {}, &SafetensorsEntry::name);
  require<ValueError>(entry != entries_.end() && entry->name == name, "safetensors '{}': it has no tensor '{}'",
                      path_.string(), printable(name));
  const auto size = static_cast<uint64_t>(size_of(entry->dtype));
  const int64_t count = static_cast<int64_t>((entry->end - entry->begin) / size);
  require<ValueError>(elements.dtype() == entry->dtype && first >= 0 && first + elements.numel() <= count,
                      "safetensors '{}': these are no elements of '{}', {} {}; got {} from element {} on",
                      path_.string(), printable(name), entry->dtype, entry->sizes, elements, first);
  const ModeScope quiet(0, kGradMode);
  const Tensor data = elements.to(kCPU).contiguous();
  write_at(entry->begin + static_cast<uint64_t>(first) * size, data.data_ptr(),
           static_cast<std::size_t>(elements.numel()) * size);
}

void SharedSafetensors::commit() {
  if (::fsync(file_.get()) != 0) raise_io("cannot write", path_, errno);
  if (!file_.close()) raise_io("cannot write", path_, errno);
}

void SharedSafetensors::write_at(uint64_t offset, const void* data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;  // can be interrupted sooner than 2 GiB
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(file_.get(), at, std::min(bytes, kPiece), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) raise_io("cannot write", path_, errno);
    at += done, bytes -= static_cast<std::size_t>(done), offset += static_cast<uint64_t>(done);
  }
}

}  // namespace lorry::io
