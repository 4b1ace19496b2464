#include "lorry/nn/gpt.h"

#include <cmath>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"

namespace lorry::nn {
namespace {

struct Preset {
  std::string_view name;
  GPTConfig config;
};

/// Settings that shorten the initial plateau of small models over bytes: bench/byte_presets.cpp tests them.
constexpr GPTConfig over_bytes(GPTConfig sizes) {
  sizes.rotary = sizes.scale_embeddings = sizes.lecun_normal = true;
  return sizes;
}

constexpr Preset kPresets[] = {
    {"nano", over_bytes({.vocab = 256, .context = 128, .layers = 4, .heads = 4, .width = 128})},
    {"tiny", over_bytes({.vocab = 256, .context = 256, .layers = 6, .heads = 6, .width = 384})},
    {"small", over_bytes({.vocab = 256, .context = 512, .layers = 8, .heads = 8, .width = 512})},
    {"gpt2", {.vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768}},
};

GPTConfig checked(const GPTConfig& c) {
  for (const auto& [name, value] : {std::pair{"vocab", c.vocab},
                                    {"context", c.context},
                                    {"layers", c.layers},
                                    {"heads", c.heads},
                                    {"width", c.width}})
    require<ValueError>(value > 0, "GPT: {} is not positive; got {}", name, value);
  require<ValueError>(c.width % c.heads == 0, "GPT: heads do not divide the width; got {} heads for width {}", c.heads,
                      c.width);
  require<ValueError>(!c.rotary || c.width / c.heads % 2 == 0,
                      "GPT: rotary positions need an even width of a head; got {} heads for width {}", c.heads,
                      c.width);
  require<ValueError>(c.dropout >= 0 && c.dropout <= 1, "GPT: dropout out of range; got {}; expected 0 to 1",
                      c.dropout);
  return c;
}

/// Initialises a linear layer from a normal distribution.
void initialise(const Linear& layer, double std) {
  layer.weight.normal_(0, std);
  if (layer.bias.defined()) layer.bias.zero_();
}

}  // namespace

GPTConfig gpt_preset(std::string_view name) {
  std::string names;
  for (const Preset& p : kPresets) {
    if (p.name == name) return p.config;
    names += (names.empty() ? "" : ", ") + std::string(p.name);
  }
  raise<ValueError>("GPT: no preset '{}'; expected one of {}", name, names);
}

int64_t parameter_count(const GPTConfig& c) {
  const int64_t w = c.width, norm = c.bias ? 2 * w : w;
  // Attention maps w to 3 w and back, the MLP w to 4 w and back.
  const int64_t block = 12 * w * w + (c.bias ? 9 * w : 0) + 2 * norm;
  const int64_t embeddings = (c.vocab + (c.rotary ? 0 : c.context)) * w;
  return embeddings + c.layers * block + norm + (c.tie_weights ? 0 : c.vocab * w);
}

KVCache::KVCache(const GPTConfig& config, int64_t batch, const Options& options)
    : capacity_(checked(config).context), batch_(batch) {
  require<ValueError>(batch > 0, "KVCache: batch is not positive; got {}", batch);
  for (int64_t i = 0; i < config.layers; ++i) {
    const Dims sizes = {batch, config.heads, config.context, config.width / config.heads};
    layers_.push_back({zeros(sizes, options), zeros(sizes, options)});
  }
}

void KVCache::truncate(int64_t length) {
  require<IndexError>(length >= 0 && length <= length_, "KVCache: cannot keep {} positions of {}", length, length_);
  length_ = length;
}

CausalSelfAttention::CausalSelfAttention(const GPTConfig& c, const Options& options)
    : qkv(c.width, 3 * c.width, c.bias, options),
      projection(c.width, c.width, c.bias, options),
      heads_(c.heads),
      dropout_(c.dropout),
      residual_dropout_(c.dropout) {
  add("qkv", qkv);
  add("projection", projection);
  add("dropout", residual_dropout_);
}

Tensor CausalSelfAttention::project(const Tensor& x, const Rotation* rotation) const {
  const detail::ShapesOnly shapes;
  const Tensor packed = qkv.forward(x);
  if (rotation == nullptr) return packed;
  const int64_t b = x.size(0), t = x.size(1), w = x.size(2);
  const Tensor heads = packed.view({b, t, 3 * heads_, w / heads_});
  return rotary(heads, rotation->cos, rotation->sin, 2 * heads_).view({b, t, 3 * w});
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation) const {
  const Scope here = scope();
  const AttentionOptions options{.dropout = is_training() ? dropout_ : 0, .causal = true};
  return residual_dropout_.forward(projection.forward(packed_attention(project(x, rotation), heads_, options)));
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation, const KVCache::Layer& cache,
                                    int64_t first) const {
  const Scope here = scope();
  const int64_t b = x.size(0), t = x.size(1), w = x.size(2), end = first + t;
  const Tensor parts = project(x, rotation).view({b, t, 3, heads_, w / heads_});
  const auto part = [&](int64_t i) { return parts.select(2, i).transpose(1, 2); };
  cache.k.narrow(2, first, t).copy_(part(1));
  cache.v.narrow(2, first, t).copy_(part(2));
  // A single position attends to everything before it. Several positions after others need a mask, because causal
  // counts queries and keys from 0.
  const Tensor mask = t > 1 && first > 0 ? ones({t, end}, {kBool, x.device()}).tril(first) : Tensor();
  const Tensor seen = scaled_dot_product_attention(part(0), cache.k.narrow(2, 0, end), cache.v.narrow(2, 0, end), mask,
                                                   {.causal = t > 1 && first == 0});
  return projection.forward(seen.transpose(1, 2).reshape({b, t, w}));
}

MLP::MLP(const GPTConfig& c, const Options& options)
    : up(c.width, 4 * c.width, c.bias, options), down(4 * c.width, c.width, c.bias, options), dropout_(c.dropout) {
  add("up", up);
  add("down", down);
  add("dropout", dropout_);
}

Tensor MLP::forward(const Tensor& x) const {
  const Scope here = scope();
  return dropout_.forward(down.forward(gelu(up.forward(x), "tanh")));
}

Block::Block(const GPTConfig& c, const Options& options)
    : norm1(c.width, c.bias, 1e-5, options),
      attention(c, options),
      norm2(c.width, c.bias, 1e-5, options),
      mlp(c, options) {
  add("norm1", norm1);
  add("attention", attention);
  add("norm2", norm2);
  add("mlp", mlp);
}

Tensor Block::forward(const Tensor& x, const Rotation* rotation) const {
  const Scope here = scope();
  const Tensor middle = x + attention.forward(norm1.forward(x), rotation);
  return middle + mlp.forward(norm2.forward(middle));
}

Tensor Block::forward(const Tensor& x, const Rotation* rotation, const KVCache::Layer& cache, int64_t first) const {
  const Scope here = scope();
  const Tensor middle = x + attention.forward(norm1.forward(x), rotation, cache, first);
  return middle + mlp.forward(norm2.forward(middle));
}

GPT::GPT(const GPTConfig& config, const Options& options)
    : tokens(checked(config).vocab, config.width, {}, options),
      norm(config.width, config.bias, 1e-5, options),
      config_(config),
      dropout_(config.dropout) {
  add("tokens", tokens);
  if (!config.rotary) add("positions", positions.emplace(config.context, config.width, std::nullopt, options));
  add("dropout", dropout_);
  for (int64_t i = 0; i < config.layers; ++i) add(fmt::format("block{}", i), blocks.emplace_back(config, options));
  add("norm", norm);
  if (config.rotary) {
    const Rotation all = nn::rotation(0, config.context, config.width / config.heads, options);
    rotation_ = {constant(all.cos), constant(all.sin)};
  }
  if (!config.tie_weights) head_ = parameter("head", empty({config.vocab, config.width}, options));

  const NoGrad quiet;
  constexpr double kStd = 0.02;  // GPT-2's
  const double inside = config.lecun_normal ? 1 / std::sqrt(static_cast<double>(config.width)) : kStd;
  const double residual = inside / std::sqrt(2.0 * static_cast<double>(config.layers));
  tokens.weight.normal_(0, kStd);
  if (positions) positions->weight.normal_(0, kStd);
  for (const Block& block : blocks) {
    initialise(block.attention.qkv, inside);
    initialise(block.attention.projection, residual);
    initialise(block.mlp.up, inside);
    initialise(block.mlp.down, residual);
  }
  if (head_.defined()) head_.normal_(0, kStd);
}

Tensor GPT::embed(const Tensor& indices, int64_t first) const {
  require<ShapeError>(indices.defined() && indices.dim() == 2 && indices.size(1) > 0,
                      "GPT: tokens have no shape [b, t]; got {}",
                      indices.defined() ? describe(indices) : "an undefined tensor");
  const int64_t t = indices.size(1);
  require<IndexError>(first + t <= config_.context,
                      "GPT: more positions than the context; got {} after {}; expected at most {}", t, first,
                      config_.context);
  Tensor x = tokens.forward(indices);
  if (config_.scale_embeddings) x = x * std::sqrt(static_cast<double>(config_.width));
  return dropout_.forward(positions ? x + positions->weight.narrow(0, first, t) : x);
}

std::optional<Rotation> GPT::rotation(int64_t first, int64_t count) const {
  if (!config_.rotary) return std::nullopt;
  // The tables keep the dtype of the constructor; a model converted to or from f64 needs others.
  const DType dtype = tokens.weight.dtype() == kF64 ? kF64 : kF32;
  return Rotation{rotation_.cos.narrow(0, first, count).to(dtype), rotation_.sin.narrow(0, first, count).to(dtype)};
}

Tensor GPT::features(const Tensor& indices) const {
  const detail::ShapesOnly shapes;
  Tensor x = embed(indices, 0);
  const std::optional<Rotation> turn = rotation(0, indices.size(1));
  for (const Block& block : blocks) x = block.forward(x, turn ? &*turn : nullptr);
  return norm.forward(x);
}

Tensor GPT::forward(const Tensor& indices) const {
  const Scope here = scope();
  return linear(features(indices), head());
}

Tensor GPT::loss(const Tensor& indices, const Tensor& targets) const {
  const detail::ShapesOnly shapes;
  const Tensor logits = linear_aligned(features(indices), head());
  require<ShapeError>(targets.defined() && targets.sizes() == indices.sizes(),
                      "GPT: targets differ in shape; got {} for tokens {}",
                      targets.defined() ? describe(targets) : "nothing", indices);
  return cross_entropy(logits.view({-1, config_.vocab}), targets.reshape({-1}), {}, -100, Reduction::mean, 0,
                       logits.dtype() == kF64 ? kF64 : kF32);
}

Tensor GPT::forward(const Tensor& indices, KVCache& cache) const {
  const Scope here = scope();
  const NoGrad quiet;
  require<ShapeError>(cache.layers_.size() == blocks.size(),
                      "GPT: the cache is of another model; got {} layers; expected {}", cache.layers_.size(),
                      blocks.size());
  Tensor x = embed(indices, cache.length_);
  require<ShapeError>(indices.size(0) == cache.batch_,
                      "GPT: the cache is for another batch; got tokens: {} and a cache for {}", indices, cache.batch_);
  const std::optional<Rotation> turn = rotation(cache.length_, indices.size(1));
  for (size_t i = 0; i < blocks.size(); ++i)
    x = blocks[i].forward(x, turn ? &*turn : nullptr, cache.layers_[i], cache.length_);
  cache.length_ += indices.size(1);
  // Only the last position is needed, so the head, a third of the work for a byte vocabulary, runs once.
  return linear(norm.forward(x.select(1, -1)), head());
}

}  // namespace lorry::nn
