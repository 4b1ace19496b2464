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

PagedCache::PagedCache(const GPTConfig& config, int64_t blocks, int64_t block_size, const Options& options) {
  checked(config);
  require<ValueError>(blocks > 0 && block_size > 0,
                      "PagedCache: no room for a position; got {} blocks of {}; expected at least one of each", blocks,
                      block_size);
  const Dims sizes = {blocks, block_size, config.heads, config.width / config.heads};
  for (int64_t i = 0; i < config.layers; ++i) layers_.push_back({zeros(sizes, options), zeros(sizes, options)});
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
  Dims heads = packed.sizes();
  heads.back() = 3 * heads_;
  heads.push_back(packed.size(-1) / (3 * heads_));
  return rotary(packed.view(heads), rotation->cos, rotation->sin, 2 * heads_).view(packed.sizes());
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation) const {
  const Scope here = scope();
  const AttentionOptions options{.dropout = is_training() ? dropout_ : 0, .causal = true};
  return residual_dropout_.forward(projection.forward(packed_attention(project(x, rotation), heads_, options)));
}

Tensor CausalSelfAttention::project_and_store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                              const PagedCache::Layer& cache) const {
  const Tensor parts = project(x, rotation).view({x.size(0), 3, heads_, x.size(1) / heads_});
  paged_write(cache.k, cache.v, parts.select(1, 1), parts.select(1, 2), rows.block_table, rows.slots, rows.positions);
  return parts.select(1, 0);
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                    const PagedCache::Layer& cache) const {
  const Scope here = scope();
  const Tensor q = project_and_store(x, rotation, rows, cache);
  const Tensor seen = paged_attention(q, cache.k, cache.v, rows.block_table, rows.slots, rows.positions);
  return projection.forward(seen.view(x.sizes()));
}

void CausalSelfAttention::store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                const PagedCache::Layer& cache) const {
  const Scope here = scope();
  project_and_store(x, rotation, rows, cache);
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

Tensor Block::forward(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                      const PagedCache::Layer& cache) const {
  const Scope here = scope();
  const Tensor middle = x + attention.forward(norm1.forward(x), rotation, rows, cache);
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

Tensor GPT::embed(const Tensor& indices) const {
  require<ShapeError>(indices.defined() && indices.dim() == 2 && indices.size(1) > 0,
                      "GPT: tokens have no shape [b, t]; got {}",
                      indices.defined() ? describe(indices) : "an undefined tensor");
  const int64_t t = indices.size(1);
  require<IndexError>(t <= config_.context, "GPT: more positions than the context; got {}; expected at most {}", t,
                      config_.context);
  const Tensor x = embed_tokens(indices);
  return dropout_.forward(positions ? x + positions->weight.narrow(0, 0, t) : x);
}

Tensor GPT::embed_tokens(const Tensor& indices) const {
  const Tensor x = tokens.forward(indices);
  return config_.scale_embeddings ? x * std::sqrt(static_cast<double>(config_.width)) : x;
}

std::optional<Rotation> GPT::rotation() const {
  if (!config_.rotary) return std::nullopt;
  // The tables keep the dtype of the constructor; a model converted to or from f64 needs others.
  const DType dtype = tokens.weight.dtype() == kF64 ? kF64 : kF32;
  return Rotation{rotation_.cos.to(dtype), rotation_.sin.to(dtype)};
}

Tensor GPT::features(const Tensor& indices) const {
  const detail::ShapesOnly shapes;
  Tensor x = embed(indices);
  const std::optional<Rotation> all = rotation();
  const auto first = [&](const Tensor& table) { return table.narrow(0, 0, indices.size(1)); };
  const Rotation turn = all ? Rotation{first(all->cos), first(all->sin)} : Rotation{};
  for (const Block& block : blocks) x = block.forward(x, all ? &turn : nullptr);
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

Tensor GPT::run(const PagedBatch& rows, const PagedCache& cache, bool prefills) const {
  const NoGrad quiet;
  require<ShapeError>(rows.tokens.defined() && rows.tokens.dim() == 1,
                      "GPT: tokens of a flat batch have no shape [n]; got {}",
                      rows.tokens.defined() ? describe(rows.tokens) : "an undefined tensor");
  require<ShapeError>(cache.layers().size() == blocks.size(),
                      "GPT: the cache is of another model; got {} layers; expected {}", cache.layers().size(),
                      blocks.size());
  Tensor x = embed_tokens(rows.tokens);
  if (positions) x = x + positions->forward(rows.positions);
  std::optional<Rotation> turn = rotation();
  if (turn) turn = Rotation{turn->cos.index_select(0, rows.positions), turn->sin.index_select(0, rows.positions)};
  const Rotation* const by = turn ? &*turn : nullptr;
  const size_t whole = blocks.size() - (prefills ? 1 : 0);
  for (size_t i = 0; i < whole; ++i) x = blocks[i].forward(x, by, rows, cache.layers()[i]);
  if (prefills) blocks.back().attention.store(blocks.back().norm1.forward(x), by, rows, cache.layers().back());
  return x;
}

Tensor GPT::forward(const PagedBatch& rows, const PagedCache& cache) const {
  const Scope here = scope();
  const NoGrad quiet;
  return linear(norm.forward(run(rows, cache, false)), head());
}

void GPT::prefill(const PagedBatch& rows, const PagedCache& cache) const {
  const Scope here = scope();
  run(rows, cache, true);
}

}  // namespace lorry::nn
