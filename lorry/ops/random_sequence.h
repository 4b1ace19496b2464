#pragma once

// What stands behind generators: sequences of draws, for those who take several draws at once, take them again, or hold
// the sequence beyond its generator.

#include <atomic>
#include <mutex>

#include "lorry/ops/random.h"

namespace lorry {
class RandomCapture;
}

namespace lorry::detail {

/// Consecutive draws of a sequence. Not to be kept beyond a capture in which they were taken.
class Draws {
 public:
  /// Names the i-th, made in memory of a device. Throws CaptureError where the capture has no state on that device.
  formula::RandomKey key(Device device, uint64_t i = 0) const;

 private:
  friend class lorry::RandomCapture;
  friend class RandomSequence;
  formula::RandomKey first_;
  const RandomCapture* capture_ = nullptr;
  size_t row_ = 0;  ///< of the capture's states
};

/// A seed and the offset of the next draw. On a thread whose draws are captured they count from the capture's state in
/// memory (ops/random_capture.h).
class RandomSequence : public std::enable_shared_from_this<RandomSequence> {
 public:
  explicit RandomSequence(const Generator::State& state) : state_(state), id_(s_next_id++) {}
  /// The draws from one that was made before. Their names stay as they are, in a capture too.
  explicit RandomSequence(const formula::RandomKey& first)
      : state_{first.seed, first.offset}, memory_(first.state), named_(true), id_(s_next_id++) {}

  /// Takes the next draws.
  Draws take(uint64_t count);
  Generator::State state() const;
  void set_state(const Generator::State& state);

  /// Where a sequence stands, in a capture or outside.
  struct Position {
    Generator::State state;
    uint64_t capture = 0;  ///< the capture's number, and then state.offset counts its draws; 0: none
  };
  Position position();
  /// Throws CaptureError for a position in another capture, or in none where this thread is captured.
  void rewind(const Position& to);

  /// Whether it names draws that were made before.
  bool named() const { return named_; }
  uint64_t id() const { return id_; }
  /// Sequences that are there have smaller ids than this, later ones do not. The default generator's is there.
  static uint64_t next_id();

 private:
  friend class lorry::RandomCapture;
  RandomCapture* capture() const;
  Draws take_by_value(uint64_t count);

  mutable std::mutex mutex_;
  Generator::State state_;
  const formula::RandomState* memory_ = nullptr;
  const bool named_ = false;
  const uint64_t id_;
  static inline std::atomic<uint64_t> s_next_id{1};
};

/// Puts a generator back to an earlier position until the end of the scope, to make its draws once more. Listeners are
/// not notified, because the draws are not new.
class RewindScope {
 public:
  RewindScope(Generator& generator, const RandomSequence::Position& to);
  ~RewindScope();
  RewindScope(const RewindScope&) = delete;
  RewindScope& operator=(const RewindScope&) = delete;

 private:
  std::shared_ptr<RandomSequence> sequence_;
  RandomSequence::Position before_;
  bool inside_another_;
};

/// The next draw of a generator, or of the default one for null.
formula::RandomKey next_key(Generator* generator, Device device);

}  // namespace lorry::detail
