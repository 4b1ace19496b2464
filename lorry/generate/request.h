#pragma once

// What is generated, and how its tokens are drawn.

#include <cstdint>
#include <vector>

namespace lorry::generate {

/// How a text's tokens are drawn (ops/tokens.h).
struct Sampling {
  double temperature = 1;         ///< 0 takes the likeliest token
  int64_t top_k = 0;              ///< among how many of the likeliest; 0: all
  double top_p = 1;               ///< among those with this fraction of the probability; in (0, 1]
  double repetition_penalty = 1;  ///< makes tokens of the text less likely if above 1; positive
  uint64_t seed = 0;
  uint64_t stream = 0;  ///< texts of one seed and different streams draw independently
};

/// A text to continue. Its next tokens depend on what is here alone, whatever else is generated at the same time.
struct Request {
  /// The text so far: a prompt, and what was drawn before.
  std::vector<int64_t> tokens = {};
  /// How many of `tokens`, the last ones, were drawn before. The text goes on as it would have then.
  int64_t drawn = 0;
  /// The most tokens to draw now.
  int64_t limit = 128;
  /// The text ends behind any of these runs of drawn tokens.
  std::vector<std::vector<int64_t>> stops = {};
  Sampling sampling = {};
};

/// Why a text has ended.
enum class End : uint8_t { none, limit, stop, cancelled };

/// What has become known of a text.
struct Update {
  int64_t request;              ///< what Engine::submit returned
  std::vector<int64_t> tokens;  ///< drawn since the last update
  End end = End::none;
};

/// Where the model's context begins in a text of `size` tokens, of which the first `prompt` were not drawn. It begins
/// with the text, or with the last `context` tokens of the prompt. When it is full, it begins again with the last half.
/// A function of the text, so that a text that is resumed goes on as it would have.
int64_t context_start(int64_t prompt, int64_t size, int64_t context);

}  // namespace lorry::generate
