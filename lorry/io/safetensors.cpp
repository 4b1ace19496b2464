#include "lorry/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>

#include "lorry/base/modes.h"
#include "lorry/io/file.h"
#include "lorry/io/safetensors_header.h"

namespace lorry::io {
namespace {

using SharedFile = std::shared_ptr<const MappedFile>;

IntrusivePtr<Storage> storage_of(const SharedFile& file, const SafetensorsEntry& entry) {
  std::byte* first = file->data() + entry.begin;
  const auto bytes = static_cast<int64_t>(entry.end - entry.begin);
  if (reinterpret_cast<uintptr_t>(first) % size_of(entry.dtype) == 0) {
    auto release = [](void* context) { delete static_cast<SharedFile*>(context); };
    return Storage::foreign(kCPU, first, bytes, release, new SharedFile(file));
  }
  auto copy = Storage::allocate(kCPU, bytes);
  std::memcpy(copy->data(), first, static_cast<size_t>(bytes));
  return copy;
}

/// The reference writer's order of all dtypes, also of those that Lorry lacks: largest elements first, so that tensors
/// are aligned without padding.
int order_of(DType dtype) {
  constexpr std::string_view kOrder[] = {"U64", "I64", "F64",     "C64",     "F32",     "U32", "I32", "BF16", "F16",
                                         "U16", "I16", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8",  "U8",  "BOOL"};
  return static_cast<int>(std::ranges::find(kOrder, safetensors_name(dtype)) - kOrder);
}

}  // namespace

TensorMap load_safetensors(const std::filesystem::path& path, Metadata* metadata, std::vector<UnreadTensor>* unread) {
  const auto file = std::make_shared<const MappedFile>(path);
  SafetensorsHeader header = parse_safetensors(file->bytes(), path.string());
  require<FormatError>(unread != nullptr || header.unread.empty(), "safetensors '{}': {}", path.string(),
                       header.unread.empty() ? "" : why_unread(header.unread.front()));
  if (unread != nullptr) *unread = std::move(header.unread);
  TensorMap tensors;
  for (SafetensorsEntry& entry : header.entries)
    tensors.emplace(std::move(entry.name),
                    Tensor(make_counted<detail::TensorNode>(storage_of(file, entry), Layout::contiguous(entry.sizes), 0,
                                                            entry.dtype)));
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return tensors;
}

std::vector<SafetensorsEntry> safetensors_entries(const TensorMap& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    require<ValueError>(tensor.defined(), "safetensors: tensor '{}' is undefined; expected a tensor", printable(name));
    entries.push_back({name, tensor.dtype(), tensor.sizes(), 0, 0});
  }
  std::ranges::sort(entries, {}, [](const SafetensorsEntry& e) {
    return std::tuple<int, const std::string&>(order_of(e.dtype), e.name);
  });
  return entries;
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors, const Metadata& metadata) {
  std::vector<SafetensorsEntry> entries = safetensors_entries(tensors);
  AtomicFile file(path);
  file.write(format_safetensors_header(entries, metadata));
  const ModeScope quiet(0, kGradMode);
  for (const SafetensorsEntry& entry : entries) {
    const Tensor data = tensors.at(entry.name).to(kCPU).contiguous();
    file.write(data.data_ptr(), entry.end - entry.begin);
  }
  file.commit();
}

void restore(const TensorMap& targets, const TensorMap& loaded, std::string_view where) {
  for (const auto& [name, target] : targets) {
    const auto found = loaded.find(name);
    require<FormatError>(found != loaded.end(), "{}: '{}' is missing; expected {}", where, printable(name), target);
    const Tensor& source = found->second;
    require<ShapeError>(source.sizes() == target.sizes(), "{}: '{}' has another shape; got {}; expected {}", where,
                        printable(name), source, target);
    require<DTypeError>(source.dtype() == target.dtype(), "{}: '{}' has another dtype; got {}; expected {}", where,
                        printable(name), source, target);
  }
  for (const auto& [name, source] : loaded)
    require<FormatError>(targets.contains(name), "{}: '{}' is unexpected; got {}", where, printable(name), source);
  const ModeScope quiet(0, kGradMode);
  for (const auto& [name, target] : targets) target.copy_(loaded.at(name));
}

}  // namespace lorry::io
