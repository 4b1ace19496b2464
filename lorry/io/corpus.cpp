#include "lorry/io/corpus.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lorry/io/file.h"
#include "lorry/ops/creation.h"

namespace lorry::io {
namespace {

constexpr std::size_t kHeldOut = 10;  // one byte in this many

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection that maps neighbouring counters to distant values.
uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The number in [0, limit) that (seed, position) determines. The bias, limit / 2^64, is far too small to matter.
uint64_t draw(uint64_t seed, uint64_t position, uint64_t limit) {
  const uint64_t random = mix(mix(seed + 0x9e3779b97f4a7c15u) + position * 0x9e3779b97f4a7c15u);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(random) * limit >> 64);
}

Batch empty_batch(int64_t batch, int64_t context, bool pinned, const char* where) {
  require<ValueError>(batch >= 1, "{}: batch is out of range; got {}; expected at least 1", where, batch);
  const auto make = [&] {
    return pinned ? empty_pinned({batch, context}, kI64) : empty({batch, context}, {kI64, kCPU});
  };
  return {make(), make()};
}

/// Fills row `row` of a batch from the bytes at `from`.
void fill(const Batch& batch, int64_t row, int64_t context, const char* from) {
  int64_t* x = batch.x.data<int64_t>() + row * context;
  int64_t* y = batch.y.data<int64_t>() + row * context;
  for (int64_t i = 0; i < context; ++i) x[i] = static_cast<unsigned char>(from[i]);
  for (int64_t i = 0; i < context; ++i) y[i] = static_cast<unsigned char>(from[i + 1]);
}

}  // namespace

Corpus::Corpus(const std::vector<std::filesystem::path>& files, int64_t context, uint64_t seed)
    : context_(context), seed_(seed) {
  require<ValueError>(context >= 1, "corpus: context is out of range; got {}; expected at least 1", context);
  require<ValueError>(!files.empty(), "corpus: no text file was given; expected at least one");
  for (const auto& path : files) {
    const std::string text = read_text(path, std::numeric_limits<int64_t>::max());
    require<ValueError>(!text.empty(), "corpus: '{}' is empty; expected text", path.string());
    const std::size_t held_out = text.size() / kHeldOut;
    train_.append(text, 0, text.size() - held_out);
    validation_.append(text, text.size() - held_out);
  }
  require<ValueError>(std::min(train_bytes(), validation_bytes()) > context,
                      "corpus: text is too short for a context of {}; got {} bytes to train on and {} held out; "
                      "expected more than {} in each, so about {} in all",
                      context, train_bytes(), validation_bytes(), context,
                      (context + 1) * static_cast<int64_t>(kHeldOut));
}

uint64_t Corpus::fingerprint() const {
  uint64_t hash = mix(train_.size());
  for (const std::string* part : {&train_, &validation_})
    for (std::size_t i = 0; i < part->size(); i += sizeof hash) {
      uint64_t word = 0;
      std::memcpy(&word, part->data() + i, std::min(sizeof word, part->size() - i));
      hash = mix(hash + 0x9e3779b97f4a7c15u + word);
    }
  return hash;
}

Batch Corpus::train_batch(int64_t batch) {
  const Batch result = empty_batch(batch, context_, pinned_, "train_batch");
  const auto windows = static_cast<uint64_t>(train_bytes() - context_);
  for (int64_t row = 0; row < batch; ++row)
    fill(result, row, context_, train_.data() + draw(seed_, position_++, windows));
  return result;
}

int64_t Corpus::validation_batches(int64_t batch) const {
  require<ValueError>(batch >= 1, "validation_batches: batch is out of range; got {}; expected at least 1", batch);
  return (validation_windows() + batch - 1) / batch;
}

Batch Corpus::validation_batch(int64_t index, int64_t batch) const {
  const int64_t count = validation_batches(batch);
  require<IndexError>(index >= 0 && index < count, "validation_batch: index is out of range; got {}; expected 0 to {}",
                      index, count - 1);
  const int64_t first = index * batch, rows = std::min(batch, validation_windows() - first);
  const Batch result = empty_batch(rows, context_, pinned_, "validation_batch");
  for (int64_t row = 0; row < rows; ++row) fill(result, row, context_, validation_.data() + (first + row) * context_);
  return result;
}

}  // namespace lorry::io
