#pragma once

// Text from a model, for many requests at once (continuous batching: Yu et al. 2022, Orca). A step decodes one token of
// every sequence; requests join and leave between steps.
//
//   generate::Engine engine(model, {.sequences = 8});
//   engine.submit({.tokens = prompt, .limit = 100});
//   while (!engine.idle())
//     for (const generate::Update& update : engine.step()) show(update.request, update.tokens);
//
// Prompts of different lengths need no padding: positions, block tables and settings are rows of tensors on the device,
// which draws the tokens, counts them and notices the ends. On a GPU the host enqueues several steps and looks at the
// tokens of earlier ones meanwhile, so the GPU does not wait for it.

#include <cstdint>
#include <memory>
#include <vector>

#include "lorry/generate/request.h"
#include "lorry/nn/gpt.h"
#include "lorry/replay/buckets.h"

namespace lorry::generate {

/// How many texts an engine holds, and how it runs.
struct EngineOptions {
  int64_t sequences = 16;       ///< the most that are decoded together
  int64_t block_size = 16;      ///< positions of a block of the cache
  int64_t blocks = 0;           ///< of the cache; 0: enough for `sequences` whole contexts
  int64_t prefill_chunk = 256;  ///< the most positions of prompts that are read between two steps
  /// How many steps are enqueued before the host looks at their tokens, and looks at them while the next ones run; 0:
  /// 16 on a GPU, 1 on the CPU, where it looks at once.
  int64_t steps_ahead = 0;
  int64_t stops = 4;         ///< the most runs of tokens that end a text, of each request
  int64_t stop_length = 16;  ///< the longest of them, in tokens
  bool penalties = false;    ///< whether requests may have a repetition penalty
  /// Whether a text has the same tokens in every batch (ops/batch_invariant.h). Without it a token may differ where two
  /// are nearly as likely.
  bool batch_invariant = true;
  /// How steps run: sizes, padding, graphs. Missing sizes are the default ones up to `sequences`, and larger ones are
  /// left out. The engine sets `trial`. A policy measures steps whose rows are all padding: attention has no part in
  /// it.
  replay::BucketOptions buckets = {};
};

/// Counts since the engine was made.
struct EngineStats {
  int64_t steps = 0;      ///< of decoding
  int64_t tokens = 0;     ///< drawn, as far as the host knows
  int64_t prefilled = 0;  ///< positions of prompts that were read
  int64_t waits = 0;      ///< how often the host waited for the device
  std::vector<replay::BucketStats> buckets = {};
};

/// Used by one thread at a time.
class Engine {
 public:
  /// Of a split model (nn/split.h) every rank makes the same engine and the same calls, and gets the same tokens.
  /// Everything is on the device of the model, in its dtype. The model must outlive the engine; if its parameters are
  /// written in place, later tokens follow the new ones. Throws ValueError for options out of range and for a model
  /// that is in training mode and has dropout, and OutOfMemory.
  explicit Engine(const nn::GPT& model, EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Captures the steps of all sizes. The first step does so otherwise.
  void prepare();
  /// Adds a text to generate, and returns its number. It joins when there is a slot, and blocks for all its positions.
  /// Throws ValueError or IndexError for a request that could never be served, and says why.
  int64_t submit(Request request);
  /// Ends a text. The next step tells of it. Does nothing if it has ended.
  void cancel(int64_t request);
  /// Lets waiting requests join, reads a chunk of their prompts, enqueues steps of decoding, and returns the tokens
  /// that have become known: on a GPU those of earlier calls. May return nothing. Throws what the model throws: then no
  /// text has changed, and the next step goes on. On a GPU a later step throws what a kernel reports; a row without a
  /// token that has a probability has drawn token 0 then.
  std::vector<Update> step();
  /// Whether there is nothing to do or to tell.
  bool idle() const;
  EngineStats stats() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Continues texts, all at once, and returns the tokens that were drawn for each.
std::vector<std::vector<int64_t>> generate(const nn::GPT& model, std::vector<Request> requests,
                                           EngineOptions options = {});

}  // namespace lorry::generate
