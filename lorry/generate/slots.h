#pragma once

// The slots of an engine: rows of tensors on the device, one a sequence that is being decoded. A step reads the rows of
// the first slots where they lie, so there is nothing to gather, and a captured step reads what the last one has
// written.

#include <memory>
#include <vector>

#include "lorry/generate/request.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/tokens.h"

namespace lorry::generate {

/// The sizes of the rows.
struct SlotSizes {
  int64_t slots;
  int64_t max_blocks;   ///< of a sequence
  int64_t window;       ///< how many drawn tokens of a sequence the device keeps
  int64_t stops;        ///< runs of tokens that end a sequence
  int64_t stop_length;  ///< the longest of them
  int64_t seen;         ///< tokens of the vocabulary; 0: nothing is noted
};

/// What the device has drawn, as the host sees it later.
struct SlotCopy {
  Tensor outputs, drawn, slots;  ///< on the host: as in SequenceRows
};

class Slots {
 public:
  Slots(const SlotSizes& sizes, Device device);

  /// Decoding of a sequence begins in a slot. limit: the number of draws at which it ends; position: of the last token.
  void join(int64_t slot, const Request& request, int64_t limit, int64_t position);
  void set_blocks(int64_t slot, const std::vector<int32_t>& blocks);
  /// The slot's row is padding from now on.
  void leave(int64_t slot);
  /// The sequence in slot `from`, if it has not ended, goes on in slot `to`.
  void move(int64_t from, int64_t to);

  /// All rows are padding, until resume().
  void pause();
  void resume();

  /// The rows of the first n slots.
  nn::PagedBatch batch(int64_t n) const;
  /// Draws a token for each row of logits: [n, vocab], and advances the sequences by it.
  void draw(const Tensor& logits) const;
  /// Enqueues a copy for the host. as_is: on the CPU the tensors themselves, which the next step overwrites.
  SlotCopy copy(bool as_is) const;
  const Tensor& block_table() const { return block_table_; }

 private:
  SequenceRows sequences(int64_t n) const;
  std::vector<Tensor> all() const;

  SlotSizes sizes_;
  SequenceRows rows_;
  Tensor paused_;                                 ///< the slots before pause()
  Tensor block_table_;                            ///< [slots, max_blocks] i32
  Tensor temperature_, top_k_, top_p_, penalty_;  ///< [slots]
};

}  // namespace lorry::generate
