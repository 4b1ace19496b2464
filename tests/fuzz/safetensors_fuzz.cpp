// Feeds the safetensors reader what a mutating fuzzer makes of well-formed files. A header that is refused must be
// refused by FormatError; one that is accepted must keep what its contract promises, and survive being written and read
// again. A whole file whose header is accepted is then loaded, and its tensors must be what the header says, to the
// last byte.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "lorry/io/file.h"
#include "lorry/io/safetensors.h"
#include "lorry/io/safetensors_header.h"

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// A file of given bytes without a place on the disk, under a name that others can open while it lives.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : file_(::memfd_create("safetensors", MFD_CLOEXEC)) {
    expect(file_.is_open() && ::write(file_.get(), data, size) == static_cast<ssize_t>(size),
           "the fuzzer can make a file");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  lorry::io::Descriptor file_;
};

void load_whole(const uint8_t* data, size_t size, const lorry::io::SafetensorsHeader& header) {
  using namespace lorry;
  const MemoryFile file(data, size);
  io::Metadata metadata;
  std::vector<io::UnreadTensor> unread;
  const io::TensorMap loaded = io::load_safetensors(file.path(), &metadata, &unread);
  expect(metadata == header.metadata && loaded.size() == header.entries.size(), "a file has what its header says");
  for (const auto& e : header.entries) {
    const Tensor& x = loaded.at(e.name);
    expect(x.dtype() == e.dtype && x.sizes() == e.sizes, "a tensor is what its entry says");
    expect(e.begin == e.end || std::memcmp(x.data_ptr(), data + e.begin, e.end - e.begin) == 0,
           "a tensor has its bytes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lorry;
  io::SafetensorsHeader header;
  try {
    header = io::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const FormatError&) {
    return 0;
  }
  uint64_t at = header.entries.empty() ? size : header.entries.front().begin;
  for (const auto& e : header.entries) {
    expect(e.begin == at && e.end >= e.begin, "data is contiguous");
    expect(static_cast<uint64_t>(Layout::contiguous(e.sizes).numel() * size_of(e.dtype)) == e.end - e.begin,
           "a shape has its bytes");
    at = e.end;
  }
  expect(at == size, "the data ends where the file does");

  auto entries = header.entries;
  std::string again = io::format_safetensors_header(entries, header.metadata);
  if (!entries.empty()) again.resize(entries.back().end);
  const auto second = io::parse_safetensors(std::as_bytes(std::span(again)), "again");
  expect(second.metadata == header.metadata && second.entries.size() == header.entries.size(),
         "what is written is read back");
  for (size_t i = 0; i < entries.size(); ++i)
    expect(second.entries[i].name == header.entries[i].name && second.entries[i].dtype == header.entries[i].dtype &&
               second.entries[i].sizes == header.entries[i].sizes,
           "an entry survives");

  load_whole(data, size, header);
  return 0;
}
