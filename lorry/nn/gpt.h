#pragma once

// GPT: a stack of pre-norm transformer blocks over tokens, with GPT-2's shapes (Radford et al. 2019). Positions and
// initialisation are GPT-2's, or others with which small models learn faster.
//
//   GPT model(gpt_preset("nano"));
//   Tensor loss = model.loss(tokens, targets);        // training
//   KVCache cache(model.config(), 1);                 // generation: one position at a time
//   Tensor logits = model.forward(prompt, cache);

#include <deque>
#include <optional>
#include <string_view>

#include "lorry/nn/layers.h"

namespace lorry::nn {

struct GPTConfig {
  int64_t vocab = 256;  ///< number of different tokens; 256 for bytes
  int64_t context = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  double dropout = 0;
  bool bias = true;               ///< of linear layers and norms
  bool tie_weights = true;        ///< the head reads the token embedding
  bool rotary = false;            ///< rotary positions (Su et al. 2021) instead of learned ones
  bool scale_embeddings = false;  ///< multiplies embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)
  bool lecun_normal = false;      ///< initialises linear layers with variance 1 / width instead of GPT-2's 0.02^2

  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

/// "nano" (0.8 M parameters), "tiny" (10.7 M), "small" (25.4 M): bytes, rotary positions, scaled embeddings, LeCun
/// initialisation; "gpt2" (124 M): GPT-2's own settings. Throws ValueError that lists the names.
GPTConfig gpt_preset(std::string_view name);

/// The number of parameters of a GPT of this shape; shared ones count once. Builds nothing.
int64_t parameter_count(const GPTConfig& config);

/// The keys and values of earlier positions, so that a new position costs the work of one. Memory for the whole context
/// is allocated once.
class KVCache {
 public:
  KVCache(const GPTConfig& config, int64_t batch, const Options& options = {});

  struct Layer {
    Tensor k, v;  ///< [batch, heads, context, width / heads]
  };
  /// The number of filled positions.
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  int64_t batch() const { return batch_; }
  /// Removes all positions, or those from `length` on.
  void truncate(int64_t length = 0);

 private:
  friend class GPT;
  std::vector<Layer> layers_;
  int64_t length_ = 0, capacity_, batch_;
};

/// Self-attention in which a position attends to itself and to earlier positions.
class CausalSelfAttention : public Layer<CausalSelfAttention> {
 public:
  CausalSelfAttention(const GPTConfig& config, const Options& options);
  /// x: [b, t, width]; rotation: null if positions are not rotary.
  Tensor forward(const Tensor& x, const Rotation* rotation = nullptr) const;
  /// The same for positions from `first` on. Their keys and values are written to the cache.
  Tensor forward(const Tensor& x, const Rotation* rotation, const KVCache::Layer& cache, int64_t first) const;

  Linear qkv, projection;

 private:
  /// [b, t, 3 * width]: queries and keys, rotated, and values.
  Tensor project(const Tensor& x, const Rotation* rotation) const;

  int64_t heads_;
  double dropout_;
  Dropout residual_dropout_;
};

/// Four times wider and back, with GELU in between (its tanh form, as in GPT-2).
class MLP : public Layer<MLP> {
 public:
  MLP(const GPTConfig& config, const Options& options);
  Tensor forward(const Tensor& x) const;

  Linear up, down;

 private:
  Dropout dropout_;
};

/// x + attention(norm(x)), then + mlp(norm(x)).
class Block : public Layer<Block> {
 public:
  Block(const GPTConfig& config, const Options& options);
  Tensor forward(const Tensor& x, const Rotation* rotation = nullptr) const;
  Tensor forward(const Tensor& x, const Rotation* rotation, const KVCache::Layer& cache, int64_t first) const;

  LayerNorm norm1;
  CausalSelfAttention attention;
  LayerNorm norm2;
  MLP mlp;
};

class GPT : public Layer<GPT> {
 public:
  /// Embeddings are initialised from N(0, 0.02^2); weights of linear layers too, or as config.lecun_normal says; those
  /// of the last layer of a residual branch with a deviation smaller by sqrt(2 * layers); biases are 0. Throws
  /// ValueError for an invalid config.
  explicit GPT(const GPTConfig& config, const Options& options = {});
  const GPTConfig& config() const { return config_; }

  /// tokens: [b, t] i64 with t <= context. Returns logits [b, t, vocab].
  Tensor forward(const Tensor& tokens) const;
  /// The mean cross entropy of the next tokens, in nats, in f32 (f64 for f64). targets: [b, t] i64; -100 is ignored.
  Tensor loss(const Tensor& tokens, const Tensor& targets) const;
  /// The logits [b, vocab] after the last of these tokens, which follow the positions in the cache and are added to it.
  /// Records no gradients. Throws IndexError if the cache has no room for them.
  Tensor forward(const Tensor& tokens, KVCache& cache) const;

  Embedding tokens;
  std::optional<Embedding> positions;  ///< absent with rotary positions
  std::deque<Block> blocks;
  LayerNorm norm;

 private:
  Tensor embed(const Tensor& indices, int64_t first) const;
  /// The rotation of `count` positions from `first` on; none if positions are learned.
  std::optional<Rotation> rotation(int64_t first, int64_t count) const;
  /// The input of the head: [b, t, width].
  Tensor features(const Tensor& indices) const;
  const Tensor& head() const { return config_.tie_weights ? tokens.weight : head_; }

  GPTConfig config_;
  Dropout dropout_;
  Rotation rotation_;  ///< for all positions of the context; undefined if positions are learned
  Tensor head_;
};

}  // namespace lorry::nn
