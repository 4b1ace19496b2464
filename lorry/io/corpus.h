#pragma once

// Text as training data. Bytes are the tokens (a vocabulary of 256). The last tenth of every file is held out for
// validation; the rest is one long sequence from which batches are drawn. A draw depends on (seed, position) only, so a
// run resumes from one integer.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::io {

/// Inputs, and the byte that follows each of them: both i64 [batch, context], in host memory.
struct Batch {
  Tensor x, y;
};

class Corpus {
 public:
  /// Reads the files completely. Throws IoError for a file that is missing, unreadable or not a regular file, and
  /// ValueError if there is no file, if one is empty, or if either part is too short for one window of `context` bytes
  /// and its successor.
  Corpus(const std::vector<std::filesystem::path>& files, int64_t context, uint64_t seed = 0);

  int64_t context() const { return context_; }
  int64_t train_bytes() const { return static_cast<int64_t>(train_.size()); }
  int64_t validation_bytes() const { return static_cast<int64_t>(validation_.size()); }

  /// A number that differs for other texts: a resumed run uses it to check that it reads the same text.
  uint64_t fingerprint() const;

  /// Whether batches are in pinned memory, from which a GPU copies asynchronously.
  void pin_batches(bool on) { pinned_ = on; }

  /// `batch` windows at random places of the training part; advances the position by `batch`.
  Batch train_batch(int64_t batch);

  /// The number of windows drawn so far, which is all that a checkpoint needs.
  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

  /// The number of batches that cover the validation part once, with windows that do not overlap; the last one may be
  /// smaller.
  int64_t validation_batches(int64_t batch) const;
  /// The validation batch with this index. Throws IndexError.
  Batch validation_batch(int64_t index, int64_t batch) const;

 private:
  int64_t validation_windows() const { return (validation_bytes() - 1) / context_; }

  std::string train_, validation_;
  int64_t context_;
  uint64_t seed_;
  uint64_t position_ = 0;
  bool pinned_ = false;
};

}  // namespace lorry::io
