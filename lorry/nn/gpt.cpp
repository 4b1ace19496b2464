#include "lorry/nn/gpt.h"

#include <algorithm>
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

int64_t parts(const Split* split) { return split == nullptr ? 1 : split->size(); }
/// Rows of the vocabulary that each rank has; the last ones of all may be of no token.
int64_t own_rows(const GPTConfig& c, const Split* split) { return (c.vocab + parts(split) - 1) / parts(split); }

const GPTConfig& checked(const GPTConfig& c, const Split* split) {
  checked(c);
  if (split == nullptr) return c;
  const int64_t ranks = split->size();
  require<ValueError>(c.heads % ranks == 0, "GPT: {} ranks do not divide {} heads", ranks, c.heads);
  require<ValueError>((ranks - 1) * own_rows(c, split) < c.vocab, "GPT: a vocabulary of {} is too small for {} ranks",
                      c.vocab, ranks);
  require<ValueError>(c.dropout == 0, "GPT: a split model has no dropout; got {}", c.dropout);
  return c;
}

Tensor enter(const Split* split, const Tensor& x) { return split == nullptr ? x : split->enter(x); }
/// A layer of whose inputs each rank has a part.
Tensor leave(const Split* split, const Linear& layer, const Tensor& x) {
  if (split == nullptr) return layer.forward(x);
  const Tensor sum = split->leave(linear(x, layer.weight));
  return layer.bias.defined() ? sum + layer.bias : sum;
}

/// The sizes of a parameter or state of the whole model, from those of a rank's part.
Dims whole_sizes(std::string_view key, Dims part, const SplitRule& rule, const GPTConfig& c, const Split& split) {
  const bool is_of_vocabulary = key.starts_with("tokens.") || key.starts_with("head");
  part[rule.dim] = is_of_vocabulary ? c.vocab : part[rule.dim] * split.size();
  return part;
}

/// Draws a parameter from a normal distribution. Where it is split all ranks draw the whole, and have their part of it.
void draw(const Tensor& x, std::string_view name, double std, const GPTConfig& config, const Split* split) {
  const std::optional<SplitRule> rule = split == nullptr ? std::nullopt : GPT::split_rule(name);
  if (rule)
    x.copy_(part_of(empty(whole_sizes(name, x.sizes(), *rule, config, *split), x.options()).normal_(0, std), *rule,
                    *split));
  else
    x.normal_(0, std);
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

PagedCache::PagedCache(const GPTConfig& config, int64_t blocks, int64_t block_size, const Options& options,
                       int64_t parts) {
  checked(config);
  require<ValueError>(blocks > 0 && block_size > 0,
                      "PagedCache: no room for a position; got {} blocks of {}; expected at least one of each", blocks,
                      block_size);
  const Dims sizes = {blocks, block_size, config.heads / parts, config.width / config.heads};
  for (int64_t i = 0; i < config.layers; ++i) layers_.push_back({zeros(sizes, options), zeros(sizes, options)});
}

CausalSelfAttention::CausalSelfAttention(const GPTConfig& c, const Options& options, const Split* split)
    : qkv(c.width, 3 * c.width / parts(split), c.bias, options),
      projection(c.width / parts(split), c.width, c.bias, options),
      split_(split),
      heads_(c.heads / parts(split)),
      dropout_(c.dropout),
      residual_dropout_(c.dropout) {
  add("qkv", qkv);
  add("projection", projection);
  add("dropout", residual_dropout_);
}

Tensor CausalSelfAttention::project(const Tensor& x, const Rotation* rotation) const {
  const detail::ShapesOnly shapes;
  const Tensor packed = qkv.forward(enter(split_, x));
  if (rotation == nullptr) return packed;
  Dims heads = packed.sizes();
  heads.back() = 3 * heads_;
  heads.push_back(packed.size(-1) / (3 * heads_));
  return rotary(packed.view(heads), rotation->cos, rotation->sin, 2 * heads_).view(packed.sizes());
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation) const {
  const Scope here = scope();
  const AttentionOptions options{.dropout = is_training() ? dropout_ : 0, .causal = true};
  return residual_dropout_.forward(leave(split_, projection, packed_attention(project(x, rotation), heads_, options)));
}

Tensor CausalSelfAttention::project_and_store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                              const PagedCache::Layer& cache) const {
  const Tensor packed = project(x, rotation),
               three = packed.view({x.size(0), 3, heads_, packed.size(1) / (3 * heads_)});
  paged_write(cache.k, cache.v, three.select(1, 1), three.select(1, 2), rows.block_table, rows.slots, rows.positions);
  return three.select(1, 0);
}

Tensor CausalSelfAttention::forward(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                    const PagedCache::Layer& cache) const {
  const Scope here = scope();
  const Tensor q = project_and_store(x, rotation, rows, cache);
  const Tensor seen = paged_attention(q, cache.k, cache.v, rows.block_table, rows.slots, rows.positions);
  return leave(split_, projection, seen.view({x.size(0), seen.size(1) * seen.size(2)}));
}

void CausalSelfAttention::store(const Tensor& x, const Rotation* rotation, const PagedBatch& rows,
                                const PagedCache::Layer& cache) const {
  const Scope here = scope();
  project_and_store(x, rotation, rows, cache);
}

MLP::MLP(const GPTConfig& c, const Options& options, const Split* split)
    : up(c.width, 4 * c.width / parts(split), c.bias, options),
      down(4 * c.width / parts(split), c.width, c.bias, options),
      split_(split),
      dropout_(c.dropout) {
  add("up", up);
  add("down", down);
  add("dropout", dropout_);
}

Tensor MLP::forward(const Tensor& x) const {
  const Scope here = scope();
  return dropout_.forward(leave(split_, down, gelu(up.forward(enter(split_, x)), "tanh")));
}

Block::Block(const GPTConfig& c, const Options& options, const Split* split)
    : norm1(c.width, c.bias, 1e-5, options),
      attention(c, options, split),
      norm2(c.width, c.bias, 1e-5, options),
      mlp(c, options, split) {
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

GPT::GPT(const GPTConfig& config, const Options& options, std::shared_ptr<const Split> split)
    : tokens(own_rows(checked(config, split.get()), split.get()), config.width, {}, options),
      norm(config.width, config.bias, 1e-5, options),
      config_(config),
      split_(std::move(split)),
      dropout_(config.dropout) {
  add("tokens", tokens);
  if (!config.rotary) add("positions", positions.emplace(config.context, config.width, std::nullopt, options));
  add("dropout", dropout_);
  for (int64_t i = 0; i < config.layers; ++i)
    add(fmt::format("block{}", i), blocks.emplace_back(config, options, split_.get()));
  add("norm", norm);
  if (config.rotary) {
    const Rotation all = nn::rotation(0, config.context, config.width / config.heads, options);
    rotation_ = {constant(all.cos), constant(all.sin)};
  }
  if (!config.tie_weights) head_ = parameter("head", empty(tokens.weight.sizes(), options));

  const NoGrad quiet;
  if (split_) {  // all ranks draw the same numbers
    const Generator::State random = default_generator().state();
    split_->require_same("the random numbers of a split model", fmt::format("{} {}", random.seed, random.offset));
  }
  constexpr double kStd = 0.02;  // GPT-2's
  const double inside = config.lecun_normal ? 1 / std::sqrt(static_cast<double>(config.width)) : kStd;
  const double residual = inside / std::sqrt(2.0 * static_cast<double>(config.layers));
  const auto initialise = [&](const Linear& layer, const char* name, double std) {
    draw(layer.weight, name, std, config, split_.get());
    if (layer.bias.defined()) layer.bias.zero_();
  };
  draw(tokens.weight, "tokens.weight", kStd, config, split_.get());
  if (positions) positions->weight.normal_(0, kStd);
  for (const Block& block : blocks) {
    initialise(block.attention.qkv, "attention.qkv.weight", inside);
    initialise(block.attention.projection, "attention.projection.weight", residual);
    initialise(block.mlp.up, "mlp.up.weight", inside);
    initialise(block.mlp.down, "mlp.down.weight", residual);
  }
  if (head_.defined()) draw(head_, "head", kStd, config, split_.get());
}

std::optional<SplitRule> GPT::split_rule(std::string_view parameter) {
  constexpr std::pair<std::string_view, SplitRule> kRules[] = {{"attention.qkv.weight", {0, 3}},
                                                               {"attention.qkv.bias", {0, 3}},
                                                               {"attention.projection.weight", {1, 1}},
                                                               {"mlp.up.weight", {0, 1}},
                                                               {"mlp.up.bias", {0, 1}},
                                                               {"mlp.down.weight", {1, 1}},
                                                               {"tokens.weight", {0, 1}},
                                                               {"head", {0, 1}}};
  for (const auto& [ending, rule] : kRules)
    if (parameter.ends_with(ending)) return rule;
  return std::nullopt;
}

namespace {

/// The rule of an entry of a state: of a model, or of an optimizer.
std::optional<SplitRule> rule_of(std::string_view key, const Tensor& x) {
  const std::optional<SplitRule> own = GPT::split_rule(key),
                                 rule = own ? own : GPT::split_rule(key.substr(0, key.rfind('.')));
  if (!rule || !x.defined() || x.dim() == 0) return std::nullopt;
  require<ValueError>(x.dtype() != kU8 && x.dim() > rule->dim,
                      "GPT: state '{}' is no state of a split parameter; got {}; 8-bit states cannot be split", key, x);
  return rule;
}

/// The entries of a state, those of split parameters as convert(key, tensor, rule) makes them.
template <class F>
TensorMap converted(const TensorMap& state, const F& convert) {
  const NoGrad quiet;
  TensorMap result;
  for (const auto& [key, x] : state) {
    const std::optional<SplitRule> rule = rule_of(key, x);
    result[key] = rule ? convert(key, x, *rule) : x;
  }
  return result;
}

}  // namespace

TensorMap GPT::own_state(const TensorMap& whole) const {
  if (!split_) return whole;
  return converted(
      whole, [&](const std::string&, const Tensor& x, const SplitRule& rule) { return part_of(x, rule, *split_); });
}

TensorMap GPT::whole_state(const TensorMap& own) const {
  if (!split_) return own;
  return converted(own, [&](const std::string& key, const Tensor& x, const SplitRule& rule) {
    return whole_of(x.detach(), whole_sizes(key, x.sizes(), rule, config_, *split_), rule, *split_);
  });
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
  Tensor x;
  if (split_ == nullptr) {
    x = tokens.forward(indices);
  } else {
    const int64_t rows = tokens.weight.size(0);
    const OwnIndices own(indices, split_->rank() * rows, rows, config_.vocab);
    x = split_->leave(tokens.forward(own.index).masked_fill(own.is_own.logical_not().unsqueeze(-1), 0.0));
  }
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
  return all_columns(linear(features(indices), head()));
}

Tensor GPT::all_columns(const Tensor& x) const {
  if (split_ == nullptr) return x;
  Dims sizes = x.sizes();
  sizes.back() = config_.vocab;
  return whole_of(x, sizes, {.dim = static_cast<int>(x.dim()) - 1}, *split_);
}

Tensor GPT::loss(const Tensor& indices, const Tensor& targets) const {
  const detail::ShapesOnly shapes;
  const Tensor x = features(indices), logits = linear_aligned(enter(split_.get(), x), head());
  require<ShapeError>(targets.defined() && targets.sizes() == indices.sizes(),
                      "GPT: targets differ in shape; got {} for tokens {}",
                      targets.defined() ? describe(targets) : "nothing", indices);
  if (split_) {
    const int64_t own = logits.size(-1), first = split_->rank() * own;
    const Tensor columns = logits.view({-1, own}).narrow(1, 0, std::min(own, config_.vocab - first));
    return split_->cross_entropy(columns, targets.reshape({-1}), first, config_.vocab, -100);
  }
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
  return all_columns(linear(norm.forward(run(rows, cache, false)), head()));
}

void GPT::prefill(const PagedBatch& rows, const PagedCache& cache) const {
  const Scope here = scope();
  run(rows, cache, true);
}

}  // namespace lorry::nn
