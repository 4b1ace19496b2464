#pragma once

// The static inputs of a BucketSet: for each tensor argument one tensor with room for the largest batch, of which each
// bucket sees its first rows. A batch is copied to the first rows; the rows behind it are padding.

#include <span>
#include <vector>

#include "lorry/replay/bucket_options.h"

namespace lorry::replay::detail {

class PaddedInputs {
 public:
  /// The options outlive the result.
  PaddedInputs(const BucketOptions& options, Device device, int64_t largest)
      : options_(options), device_(device), largest_(largest) {}

  /// The batch that the arguments have in common. rows: that of the size arguments; unset: there are none. Throws
  /// ShapeError if the batches differ, ValueError if there is none, or one that fits no bucket.
  int64_t batch_of(std::span<const Tensor> arguments, std::optional<int64_t> rows) const;
  /// Allocates the inputs for arguments like these, and fills them with their rows, as often as they fit.
  void allocate(std::span<const Tensor> arguments, int64_t batch);
  bool is_allocated() const { return is_allocated_; }
  void clear();
  /// Throws ShapeError, DTypeError or ValueError if the arguments differ from those of `allocate` in more than their
  /// batch.
  void check(std::span<const Tensor> arguments) const;
  /// The inputs of a bucket.
  std::vector<Tensor> of(int64_t size) const;
  /// Copies a batch to the inputs, and pads it.
  void fill(std::span<const Tensor> arguments, int64_t batch);
  /// The rows of the batch, of a bucket's results. Throws ShapeError if there are none.
  std::vector<Tensor> cut(const std::vector<Tensor>& results, int64_t size, int64_t batch) const;

 private:
  int dim_of(size_t argument) const { return argument < options_.dims.size() ? options_.dims[argument] : 0; }
  void pad(const Tensor& rows, size_t argument) const;

  const BucketOptions& options_;
  const Device device_;
  const int64_t largest_;
  bool is_allocated_ = false;
  std::vector<Tensor> whole_;
  std::vector<int64_t> written_;  ///< of each: the rows that are not padding
};

}  // namespace lorry::replay::detail
