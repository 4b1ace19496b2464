#include "lorry/optim/execution/streamed.h"

#include <algorithm>

#include "lorry/base/waits.h"
#include "lorry/device/device.h"
#include "lorry/formula/quantize.h"
#include "lorry/ops/creation.h"

namespace lorry::optim {
namespace {

using kernels::List;
using kernels::ListEntry;
using kernels::StepCall;

/// The link carries that many bytes in some 150 us: long enough to hide launches, short enough that the first copy to
/// the device and the last one back cost little.
constexpr int64_t kChunkBytes = 8 << 20;
/// Up to that many bytes the states of an entry stay in host memory.
constexpr int64_t kSmallBytes = 256 << 10;

int64_t up(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Bytes of n elements of array k; for an 8-bit state with their scales.
int64_t array_bytes(const List& list, int k, int64_t n) {
  return list.dtype(k) == kU8 ? formula::quant_bytes(n) : n * size_of(list.dtype(k));
}

int64_t entry_bytes(const List& list, const ListEntry& entry, int64_t n) {
  int64_t bytes = 0;
  for (int k = 2; k < list.arrays(); ++k)
    if (entry.at[k] != nullptr) bytes += up(array_bytes(list, k, n));
  return bytes;
}

List like(const List& whole) {
  DType dtypes[kernels::kMaxArrays];
  for (int k = 0; k < whole.arrays(); ++k) dtypes[k] = whole.dtype(k);
  return List(whole.device(), std::span(dtypes, whole.arrays()), whole.strategy());
}

char* advanced(void* at, int64_t bytes) { return static_cast<char*>(at) + bytes; }

}  // namespace

StreamedStep::StreamedStep(const StepCall& call)
    : device_(call.list.device()),
      host_(device_.is_meta() ? device_ : kCPU),  // on meta nothing can be copied to the host
      direct_{like(call.list), {}, {}},
      in_(device_),
      out_(device_),
      start_(device_),
      out_done_(device_),
      all_done_(device_) {
  cut(call.list);
  for (const Chunk& chunk : chunks_) slot_bytes_ = std::max(slot_bytes_, chunk.bytes);
  const int slots = std::min<int>(kSlots, static_cast<int>(chunks_.size()));
  slots_ = empty({slots * slot_bytes_}, {kU8, device_});
  for (int s = 0; s < slots; ++s) {
    loaded_.emplace_back(device_);
    stepped_.emplace_back(device_);
    written_back_.emplace_back(device_);
  }
  point_into_slots(call.list.arrays());
}

/// Gives every slice the addresses of its states in the chunk's slot.
void StreamedStep::point_into_slots(int arrays) {
  for (size_t c = 0; c < chunks_.size(); ++c) {
    char* const slot = static_cast<char*>(slots_.data_ptr()) + static_cast<int64_t>(c % kSlots) * slot_bytes_;
    int64_t offset = 0;
    Chunk& chunk = chunks_[c];
    for (size_t s = 0; s < chunk.slices.size(); ++s) {
      const ListEntry& entry = chunk.list.entries()[s];
      for (int k = 2; k < arrays; ++k) {
        if (entry.at[k] == nullptr) continue;
        chunk.list.move(s, k, slot + offset);
        offset += up(array_bytes(chunk.list, k, entry.count));
      }
    }
  }
}

StreamedStep::~StreamedStep() {
  try {  // events do not take errors that kernels report away from the next call
    const waits::Reason reason(waits::Wait::memory);
    all_done_.synchronize();
    for (const OwnedStream* stream : {&in_, &out_}) {  // if a step threw
      out_done_.record(*stream);
      out_done_.synchronize();
    }
  } catch (...) {
  }
}

/// Chunks take elements in the order of the list, and at most one slice of each entry. So only the first slice of a
/// chunk may begin inside its entry.
void StreamedStep::cut(const List& whole) {
  const std::span<const ListEntry> entries = whole.entries();
  for (uint32_t e = 0; e < entries.size(); ++e) {
    const ListEntry& entry = entries[e];
    if (entry_bytes(whole, entry, entry.count) <= kSmallBytes) {
      direct_.list.add(entry);
      direct_.slices.push_back({e, 0, entry.count});
      continue;
    }
    for (int64_t first = 0; first < entry.count;) {
      if (chunks_.empty() || first > 0 || chunks_.back().bytes + kSmallBytes > kChunkBytes)
        chunks_.push_back({like(whole), {}, {}});
      Chunk& chunk = chunks_.back();
      const int64_t each = std::max<int64_t>(1, entry_bytes(whole, entry, 1 << 20) >> 20);  // bytes per element, about
      const int64_t room = std::max<int64_t>(256, (kChunkBytes - chunk.bytes) / each / 256 * 256);
      const Slice slice{e, first, std::min(room, entry.count - first)};
      add_slice(chunk, whole, slice);
      first += slice.count;
    }
  }
}

/// Adds a slice to a chunk, and the copies that bring its arrays into the slot.
void StreamedStep::add_slice(Chunk& chunk, const List& whole, const Slice& slice) const {
  const ListEntry& entry = whole.entries()[slice.entry];
  const auto copy = [&](char* host, int64_t slot_offset, int64_t bytes) {
    if (bytes > 0) chunk.copies.push_back({host, slot_offset, bytes});
  };
  for (int k = 2; k < whole.arrays(); ++k) {
    if (entry.at[k] == nullptr) continue;
    char* const host = advanced(entry.at[k], slice.first * size_of(whole.dtype(k)));
    if (whole.dtype(k) == kU8 && slice.count != entry.count) {
      copy(host, chunk.bytes, slice.count);
      copy(advanced(entry.at[k], formula::quant_scales_at(entry.count) + 4 * (slice.first / formula::kQuantBlock)),
           chunk.bytes + formula::quant_scales_at(slice.count), 4 * formula::quant_blocks(slice.count));
    } else {
      copy(host, chunk.bytes, array_bytes(whole, k, slice.count));
    }
    chunk.bytes += up(array_bytes(whole, k, slice.count));
  }
  ListEntry part = entry;
  part.count = slice.count;
  for (int k = 0; k < 2; ++k) part.at[k] = advanced(entry.at[k], slice.first * size_of(whole.dtype(k)));
  chunk.list.add(part);
  chunk.slices.push_back(slice);
}

/// Takes the addresses of parameters and gradients from the whole list.
void StreamedStep::update_addresses(const List& whole) {
  const auto update = [&](Chunk& chunk) {
    for (size_t s = 0; s < chunk.slices.size(); ++s)
      for (int k = 0; k < 2; ++k)
        chunk.list.move(
            s, k,
            advanced(whole.entries()[chunk.slices[s].entry].at[k], chunk.slices[s].first * size_of(whole.dtype(k))));
  };
  update(direct_);
  for (Chunk& chunk : chunks_) update(chunk);
}

/// The call for a chunk. Hyper blocks advance when all chunks are done.
StepCall StreamedStep::part(const StepCall& call, const Chunk& chunk) {
  return {.list = chunk.list,
          .first_block = call.first_block,
          .block_count = 0,
          .masters = call.masters,
          .zero_grads = call.zero_grads,
          .grad_factor = call.grad_factor,
          .seed = call.seed,
          .first_element = chunk.slices.empty() ? 0 : chunk.slices[0].first};
}

void StreamedStep::prepare(const Family& family, const StepContext&, const StepCall& call, const Stream& stream) {
  update_addresses(call.list);
  family.blocks->prepare(part(call, direct_), stream);
  for (const Chunk& chunk : chunks_) family.blocks->prepare(part(call, chunk), stream);
}

void StreamedStep::run(const Family& family, const StepCall& call, const Stream& stream) {
  detail::HyperBlocks& blocks = *family.blocks;
  start_.record(stream);
  start_.block(in_);
  start_.block(out_);
  out_done_.record(out_);  // if the last step threw
  out_done_.block(in_);
  for (size_t c = 0; c < chunks_.size(); ++c) {
    const Chunk& chunk = chunks_[c];
    const size_t slot = c % kSlots;
    char* const memory = static_cast<char*>(slots_.data_ptr()) + static_cast<int64_t>(slot) * slot_bytes_;
    if (c >= kSlots) written_back_[slot].block(in_);
    for (const Copy& copy : chunk.copies)
      device::copy(memory + copy.slot_offset, device_, copy.host, host_, copy.bytes, in_);
    loaded_[slot].record(in_);
    loaded_[slot].block(stream);
    blocks.step(part(call, chunk), stream);
    stepped_[slot].record(stream);
    stepped_[slot].block(out_);
    for (const Copy& copy : chunk.copies)
      device::copy(copy.host, host_, memory + copy.slot_offset, device_, copy.bytes, out_);
    written_back_[slot].record(out_);
  }
  if (!direct_.slices.empty()) blocks.step(part(call, direct_), stream);
  if (!chunks_.empty()) written_back_[(chunks_.size() - 1) % kSlots].block(stream);
  all_done_.record(stream);
  blocks.advance(call.grad_factor, stream);
}

}  // namespace lorry::optim
