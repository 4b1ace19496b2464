#pragma once

// GPT: a stack of pre-norm transformer blocks over tokens, with GPT-2's shapes (Radford et al. 2019). Positions and
// initialisation are GPT-2's, or others with which small models learn faster.
//
//   GPT model(gpt_preset("nano"));
//   Tensor loss = model.loss(tokens, targets);        // training
//   Tensor logits = model.forward(tokens);
//
// Text is generated with generate/engine.h, which keeps the keys and values of earlier positions in a PagedCache.

#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include "lorry/nn/layers.h"
#include "lorry/nn/split.h"

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

/// The keys and values of earlier positions of several sequences, so that a new position costs the work of one. They
/// lie in blocks of positions, which sequences take as they need them (Kwon et al. 2023, PagedAttention).
class PagedCache {
 public:
  struct Layer {
    Tensor k, v;  ///< [blocks, block_size, heads, width / heads]
  };

  /// parts: the ranks of a split model, each of which has heads / parts heads. Throws ValueError for sizes that are not
  /// positive, and OutOfMemory.
  PagedCache(const GPTConfig& config, int64_t blocks, int64_t block_size = 16, const Options& options = {},
             int64_t parts = 1);
  const std::vector<Layer>& layers() const { return layers_; }
  int64_t blocks() const { return layers_[0].k.size(0); }
  int64_t block_size() const { return layers_[0].k.size(1); }

 private:
  std::vector<Layer> layers_;
};

/// A flat batch of positions of several sequences, as in ops/paged_attention.h.
struct PagedBatch {
  Tensor tokens;       ///< [n] i64 or i32
  Tensor positions;    ///< [n] i32: where in its sequence each token stands
  Tensor slots;        ///< [n] i32: which sequence it belongs to; negative: a padding row
  Tensor block_table;  ///< [sequences, max_blocks] i32: the blocks of each sequence in the cache
};

/// Self-attention in which a position attends to itself and to earlier positions.
class CausalSelfAttention : public Layer<CausalSelfAttention> {
 public:
  CausalSelfAttention(const GPTConfig& config, const Options& options, const Split* split = nullptr);
  /// x: [b, t, width]; rotation: null if positions are not rotary.
  Tensor forward(const Tensor& x, const Rotation* rotation = nullptr) const;
  /// The same for the rows of a flat batch, x: [n, width], whose keys and values are written to the cache. rotation: of
  /// each row's position.
  Tensor forward(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                 const PagedCache::Layer& cache) const;
  /// Writes the keys and values of the rows only.
  void store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows, const PagedCache::Layer& cache) const;

  Linear qkv, projection;

 private:
  /// x: [b, t, width], or the rows [n, width] of a flat batch. The last dimension becomes 3 * width: queries and keys,
  /// rotated, and values.
  Tensor project(const Tensor& x, const Rotation* rotation) const;
  /// The same for a flat batch, with keys and values written to the cache. Returns the queries: [n, heads, d].
  Tensor project_and_store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                           const PagedCache::Layer& cache) const;

  const Split* split_;
  int64_t heads_;  ///< of this rank
  double dropout_;
  Dropout residual_dropout_;
};

/// Four times wider and back, with GELU in between (its tanh form, as in GPT-2).
class MLP : public Layer<MLP> {
 public:
  MLP(const GPTConfig& config, const Options& options, const Split* split = nullptr);
  Tensor forward(const Tensor& x) const;

  Linear up, down;

 private:
  const Split* split_;
  Dropout dropout_;
};

/// x + attention(norm(x)), then + mlp(norm(x)).
class Block : public Layer<Block> {
 public:
  Block(const GPTConfig& config, const Options& options, const Split* split = nullptr);
  Tensor forward(const Tensor& x, const Rotation* rotation = nullptr) const;
  Tensor forward(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                 const PagedCache::Layer& cache) const;

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
  ///
  /// split: this rank's part of a model of this config. The heads, the MLP and the vocabulary are split, which also the
  /// tokens' table is; norms, positions and the biases of sums are whole on every rank. Throws ValueError where the
  /// ranks do not divide heads and width, or are too many for the vocabulary, and for dropout, whose masks would
  /// differ; ParallelError if ranks have other random numbers to draw.
  explicit GPT(const GPTConfig& config, const Options& options = {}, std::shared_ptr<const Split> split = nullptr);
  const GPTConfig& config() const { return config_; }
  const std::shared_ptr<const Split>& split() const { return split_; }
  /// How a split model divides a parameter; none for one that every rank has whole.
  static std::optional<SplitRule> split_rule(std::string_view parameter);
  /// This rank's part of a state of the whole model, or of an optimizer's states of it ("<parameter>.<state>"). Throws
  /// ValueError for 8-bit states of split parameters.
  TensorMap own_state(const TensorMap& whole) const;
  /// The whole of such a state, from those of all ranks. Every rank calls it.
  TensorMap whole_state(const TensorMap& own) const;

  /// tokens: [b, t] i64 with t <= context. Returns logits [b, t, vocab]. Of a split model only under NoGrad: its
  /// loss has gradients.
  Tensor forward(const Tensor& tokens) const;
  /// The mean cross entropy of the next tokens, in nats, in f32 (f64 for f64). targets: [b, t] i64; -100 is ignored.
  Tensor loss(const Tensor& tokens, const Tensor& targets) const;
  /// The logits [n, vocab] after each row. A row attends to its sequence's positions in the cache up to its own, which
  /// is written to it: rows of one batch see each other, and their order does not matter. The logits of padding rows
  /// mean nothing. Within a BatchInvariant scope (ops/batch_invariant.h) the bits of a row depend on the tokens of its
  /// sequence alone. Records no gradients. Throws IndexError for what does not exist (ops/paged_attention.h),
  /// ShapeError and DTypeError.
  Tensor forward(const PagedBatch& rows, const PagedCache& cache) const;
  /// Writes the keys and values of the rows to the cache, for rows whose logits are not needed.
  void prefill(const PagedBatch& rows, const PagedCache& cache) const;

  Embedding tokens;
  std::optional<Embedding> positions;  ///< absent with rotary positions
  std::deque<Block> blocks;
  LayerNorm norm;

 private:
  Tensor embed(const Tensor& indices) const;
  Tensor embed_tokens(const Tensor& indices) const;
  /// The rotation of all positions; none if positions are learned.
  std::optional<Rotation> rotation() const;
  /// The output of the last block for a flat batch. prefills: the last block stores keys and values only, and the
  /// result means nothing.
  Tensor run(const PagedBatch& rows, const PagedCache& cache, bool prefills) const;
  /// The input of the head: [b, t, width].
  Tensor features(const Tensor& indices) const;
  /// The logits of all ranks' columns: [..., vocab]. x: [..., own columns].
  Tensor all_columns(const Tensor& x) const;
  const Tensor& head() const { return config_.tie_weights ? tokens.weight : head_; }

  GPTConfig config_;
  std::shared_ptr<const Split> split_;
  Dropout dropout_;
  Rotation rotation_;  ///< for all positions of the context; undefined if positions are learned
  Tensor head_;
};

}  // namespace lorry::nn
