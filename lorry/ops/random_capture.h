#pragma once

// Random draws of calls that are made once and run many times, as in a device graph: their keys lie in memory (PyTorch:
// graph-safe generator state).
//
//   RandomCapture random(devices);
//   {
//     const RandomCapture::Scope capturing(random, RandomCapture::Calls::wait);
//     ...  // capture: draw i of a generator gets the key "its state in memory, plus i"
//   }
//   random.advance();  // before each run, in the order of the current streams
//   ...                // run
//
// Each run then draws the numbers that the same calls would draw from the generators at that point, to the bit.

#include <span>
#include <vector>

#include "lorry/ops/random_sequence.h"

namespace lorry {

class RandomCapture {
 public:
  /// As many generators as one capture may draw from.
  static constexpr size_t kMaxGenerators = 16;
  /// Whether captured calls are made at once too, as where there is no GPU, or wait for the first run.
  enum class Calls : uint8_t { run, wait };

  /// Allocates kMaxGenerators states on each device. The captured calls read them: this lives as long as those run.
  /// Throws OutOfMemory.
  explicit RandomCapture(std::span<const Device> devices);
  RandomCapture(const RandomCapture&) = delete;
  RandomCapture& operator=(const RandomCapture&) = delete;

  /// Captures this thread's draws from all generators that were there before. They do not advance the generators, but
  /// calls that are made at once draw what the generators would give, and the end of the scope advances them.
  ///
  /// Inside, a generator that was there before is neither read nor seeded, and nothing is drawn on other devices:
  /// CaptureError. One that is made inside draws by value: its numbers are the same in each run.
  ///
  /// The backward pass of a captured call reads the same states: it runs before the next advance().
  class Scope {
   public:
    /// Forgets the draws of an earlier scope. Throws CaptureError where this thread's draws are being captured.
    Scope(RandomCapture& capture, Calls calls);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RandomCapture& capture_;
  };

  /// Before each run of the captured calls: takes their draws from the generators, and writes where these draws begin
  /// to the devices, in the order of the current streams. Throws CaptureError inside a capture.
  void advance();
  /// How many draws a run makes, of all generators.
  uint64_t draws() const;
  /// The states on a device, i64 [kMaxGenerators, 2]: philox seed and offset of the generators in the order in which
  /// the captured calls first drew from them. Throws CaptureError where the device is not captured.
  const Tensor& states(Device device) const;

 private:
  friend class detail::Draws;
  friend class detail::RandomSequence;
  struct Captured {
    std::shared_ptr<detail::RandomSequence> sequence;
    uint64_t next = 0, draws = 0;  ///< next < draws after a rewind
  };

  /// The number of a sequence among those that are captured; it is added where it is new.
  size_t row_of(detail::RandomSequence& sequence);
  detail::Draws take(detail::RandomSequence& sequence, uint64_t count);
  const formula::RandomState* state(size_t row, Device device) const;
  /// Writes states from a row on to every device.
  void write(size_t row, std::span<const formula::RandomState> states) const;

  std::vector<Tensor> states_;
  std::vector<Captured> generators_;
  Calls calls_ = Calls::wait;
  uint64_t number_ = 0;     ///< of the scope, never used twice
  uint64_t first_new_ = 0;  ///< sequences from this id on were made inside
  static constinit thread_local RandomCapture* t_capture;
};

}  // namespace lorry
