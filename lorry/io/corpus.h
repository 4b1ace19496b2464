#pragma once

// Text as training data: bytes are the tokens (a vocabulary of 256), the last tenth of every file is held out for
// validation, and what remains is one long sequence from which batches are drawn. The draw is a function of (seed,
// position) alone, so a run resumes from one integer.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::io {

/// Inputs and the bytes that follow each of them, both i64 [batch, context], in host memory.
struct Batch {
  Tensor x, y;
};

class Corpus {
 public:
  /// Reads the files whole. Throws IoError for a file that is missing, unreadable or not a regular file; ValueError
  /// when there is no file, when one is empty, or when either part is too short for one window of `context` bytes and
  /// its successor.
  Corpus(const std::vector<std::filesystem::path>& files, int64_t context, uint64_t seed = 0);

  int64_t context() const { return context_; }
  int64_t train_bytes() const { return static_cast<int64_t>(train_.size()); }
  int64_t validation_bytes() const { return static_cast<int64_t>(validation_.size()); }

  /// A number that is another for another text: tells a resumed run that it reads what it began with.
  uint64_t fingerprint() const;

  /// Whether batches are made in pinned memory, from which a GPU copies them while the host goes on.
  void pin_batches(bool on) { pinned_ = on; }

  /// `batch` windows from random places of the training part; advances the position by `batch`.
  Batch train_batch(int64_t batch);

  /// Windows drawn so far: all that a checkpoint needs.
  uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

  /// How many batches cover the validation part once, in windows that do not overlap; the last one may be smaller.
  int64_t validation_batches(int64_t batch) const;
  /// The index-th of them. Throws IndexError.
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
