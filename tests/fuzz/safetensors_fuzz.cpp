// Feeds the safetensors reader what a mutating fuzzer makes of well-formed files. A header that is refused must be refused by
// FormatError; one that is accepted must keep what its contract promises, and survive being written and read again.

#include <cstdio>
#include <cstdlib>

#include "lorry/io/safetensors_header.h"

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
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
    expect(static_cast<uint64_t>(Layout::contiguous(e.sizes).numel() * size_of(e.dtype)) == e.end - e.begin, "a shape has its bytes");
    at = e.end;
  }
  expect(at == size, "the data ends where the file does");

  auto entries = header.entries;
  std::string again = io::format_safetensors_header(entries, header.metadata);
  if (!entries.empty()) again.resize(entries.back().end);
  const auto second = io::parse_safetensors(std::as_bytes(std::span(again)), "again");
  expect(second.metadata == header.metadata && second.entries.size() == header.entries.size(), "what is written is read back");
  for (size_t i = 0; i < entries.size(); ++i)
    expect(second.entries[i].name == header.entries[i].name && second.entries[i].dtype == header.entries[i].dtype &&
               second.entries[i].sizes == header.entries[i].sizes,
           "an entry survives");
  return 0;
}
