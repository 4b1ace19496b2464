// What ends the plateau at which small byte models learn pairs of bytes and nothing more, and what keeps short runs
// from jumping: the nano preset, varied, over seeds and texts. Prints a JSON document.
//   lorry_byte_presets [--device cuda] [--seeds N] [--steps N --planned N] [--variants A,B] NAME=FILE[,FILE...]...
// A run takes the first `steps` of a run planned for `planned`, as `lorry train` would.

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/run_settings.h"
#include "lorry/lorry.h"

using namespace lorry;

namespace {

/// Nano's sizes.
constexpr int64_t kVocab = 256, kContext = 128, kLayers = 4, kHeads = 4, kWidth = 128, kBatch = 8;

/// What differs between runs.
struct Variant {
  std::string_view name;
  bool rotary = true;
  bool norm_queries_and_keys = false;
  double std = 0.02;  ///< of linear layers; those that write to the residual have it over sqrt(2 layers)
  double embedding_std = 0.02;
  bool tied = true;            ///< the head reads the embeddings; otherwise a matrix of its own, std 0.02
  double embedding_scale = 1;  ///< what embeddings are multiplied by on their way in
  double mix = 0;              ///< how much of the byte before is added to each embedding, at the start
  double lr = 3e-3;
  int64_t warmup = 0;  ///< steps; 0: as `lorry train` chooses
};

const double kRootWidth = std::sqrt(static_cast<double>(kWidth));

const Variant kVariants[] = {
    {.name = "learned positions", .rotary = false},
    {.name = "rotary"},
    {.name = "rotary, norms of q and k", .norm_queries_and_keys = true},
    {.name = "rotary, mix", .mix = 0.5},
    {.name = "rotary, std 0.05", .std = 0.05},
    {.name = "rotary, scale", .embedding_scale = kRootWidth},
    {.name = "rotary, scale, std 0.05", .std = 0.05, .embedding_scale = kRootWidth},
    {.name = "rotary, scale, std 0.07", .std = 0.07, .embedding_scale = kRootWidth},
    {.name = "rotary, scale, std 0.09", .std = 0.09, .embedding_scale = kRootWidth},
    {.name = "rotary, scale, std 0.05, mix", .std = 0.05, .embedding_scale = kRootWidth, .mix = 0.5},
    {.name = "rotary, scale, std 0.05, lr 5e-3", .std = 0.05, .embedding_scale = kRootWidth, .lr = 5e-3},
    {.name = "rotary, untied 0.2, std 0.05", .std = 0.05, .embedding_std = 0.2, .tied = false},
    {.name = "rotary, untied 1, std 0.05", .std = 0.05, .embedding_std = 1, .tied = false},
    {.name = "rotary, untied 1, std 0.09", .std = 0.09, .embedding_std = 1, .tied = false},
};

struct Block : nn::Layer<Block> {
  explicit Block(const Variant& v, const Options& options)
      : variant(v),
        norm1(kWidth, true, 1e-5, options),
        qkv(kWidth, 3 * kWidth, true, options),
        projection(kWidth, kWidth, true, options),
        norm2(kWidth, true, 1e-5, options),
        up(kWidth, 4 * kWidth, true, options),
        down(4 * kWidth, kWidth, true, options) {
    add("norm1", norm1);
    add("qkv", qkv);
    add("projection", projection);
    add("norm2", norm2);
    add("up", up);
    add("down", down);
    const NoGrad quiet;
    const double residual = v.std / std::sqrt(2.0 * kLayers);
    for (const auto& [layer, std] :
         {std::pair{&qkv, v.std}, {&projection, residual}, {&up, v.std}, {&down, residual}}) {
      layer->weight.normal_(0, std);
      layer->bias.zero_();
    }
  }

  Tensor forward(const Tensor& x, const nn::Rotation* rotation) const {
    const int64_t b = x.size(0), t = x.size(1);
    const Tensor parts = qkv(norm1(x)).view({b, t, 3, kHeads, kWidth / kHeads});
    Tensor q = parts.select(2, 0), k = parts.select(2, 1);
    if (variant.norm_queries_and_keys) q = rms_norm(q, {q.size(-1)}, {}), k = rms_norm(k, {k.size(-1)}, {});
    if (rotation) q = rotary(q, rotation->cos, rotation->sin), k = rotary(k, rotation->cos, rotation->sin);
    const Tensor seen = scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                                     parts.select(2, 2).transpose(1, 2), {}, {.causal = true});
    const Tensor middle = x + projection(seen.transpose(1, 2).reshape({b, t, kWidth}));
    return middle + down(gelu(up(norm2(middle)), "tanh"));
  }

  const Variant& variant;
  nn::LayerNorm norm1;
  nn::Linear qkv, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};

struct Model : nn::Layer<Model> {
  Model(const Variant& v, const Options& options)
      : variant(v),
        tokens(parameter("tokens", randn({kVocab, kWidth}, options) * v.embedding_std)),
        norm(kWidth, true, 1e-5, options) {
    if (!v.tied) head = parameter("head", randn({kVocab, kWidth}, options) * 0.02);
    if (v.mix != 0) mix = parameter("mix", full({kWidth}, v.mix, options));
    if (!v.rotary) positions = parameter("positions", randn({kContext, kWidth}, options) * 0.02);
    for (int64_t i = 0; i < kLayers; ++i) add(fmt::format("block{}", i), blocks.emplace_back(v, options));
    add("norm", norm);
    if (v.rotary) rotation = nn::rotation(0, kContext, kWidth / kHeads, options);
  }

  Tensor forward(const Tensor& indices) const {
    Tensor x = embedding(indices, tokens) * variant.embedding_scale;
    if (mix.defined()) x = x + cat({zeros_like(x.narrow(1, 0, 1)), x.narrow(1, 0, x.size(1) - 1)}, 1) * mix;
    if (positions.defined()) x = x + positions;
    for (const Block& block : blocks) x = block(x, rotation ? &*rotation : nullptr);
    return linear(norm(x), head.defined() ? head : tokens);
  }
  Tensor loss(const io::Batch& batch, Device device) const {
    return cross_entropy(forward(batch.x.to(device)).view({-1, kVocab}), batch.y.to(device).reshape({-1}));
  }

  const Variant& variant;
  Tensor tokens, head, mix, positions;
  std::vector<Block> blocks;
  nn::LayerNorm norm;
  std::optional<nn::Rotation> rotation;
};

struct Plan {
  int64_t steps, planned;
};

void run(const Variant& v, const std::string& text, const std::vector<std::filesystem::path>& files, uint64_t seed,
         Plan plan, Device device) {
  const auto began = std::chrono::steady_clock::now();
  io::Corpus corpus(files, kContext, seed);
  manual_seed(seed);
  Model model(v, {.device = device});
  std::vector<optim::Group<optim::AdamWOptions>> groups(2);
  for (auto& group : groups)
    group.options = {.lr = v.lr, .beta2 = 0.99, .weight_decay = &group == &groups[0] ? 0.1 : 0};
  for (const auto& [name, x] : model.named_parameters()) groups[x.dim() >= 2 ? 0 : 1].params.emplace_back(name, x);
  optim::AdamW optimizer(groups);
  const optim::Schedule schedule{optim::Schedule::Kind::cosine, v.lr, 0.1 * v.lr,
                                 v.warmup ? v.warmup : cli::usual_warmup(plan.planned), plan.planned};

  const Tensor losses = zeros({plan.steps}, {.device = device});
  for (int64_t step = 0; step < plan.steps; ++step) {
    optimizer.set_lr(schedule.at(step));
    const Tensor loss = model.loss(corpus.train_batch(kBatch), device);
    loss.backward();
    optimizer.step({.max_norm = 1, .zero_grad = true});
    losses.select(0, step).copy_(loss.detach());
  }
  const NoGrad quiet;
  double validation = 0;
  constexpr int kBatches = 32;
  for (int i = 0; i < kBatches; ++i)
    validation += model.loss(corpus.validation_batch(i, kBatch), device).item<double>() / kBatches;
  const Tensor known = losses.to(kCPU);
  const auto mean = [&](int64_t first, int64_t last) {
    return known.narrow(0, first, last - first).mean().item<double>();
  };
  // A jump: how far a single step lies above the mean of the ten before it.
  double jump = 0;
  for (int64_t s = 10; s < plan.steps; ++s) jump = std::max(jump, known.select(0, s).item<double>() - mean(s - 10, s));
  std::vector<std::string> course;
  for (int64_t s = 100; s <= plan.steps; s += 100) course.push_back(fmt::format("{:.4f}", mean(s - 20, s)));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  fmt::print(
      "{{\"text\": \"{}\", \"variant\": \"{}\", \"seed\": {}, \"steps\": {}, \"planned\": {}, \"train\": [{}], "
      "\"last\": {:.4f}, \"validation\": {:.4f}, \"jump\": {:.3f}, \"seconds\": {:.1f}}}\n",
      text, v.name, seed, plan.steps, plan.planned, fmt::join(course, ", "),
      mean(std::max<int64_t>(0, plan.steps - 5), plan.steps), validation, jump, seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  Device device = kCPU;
  uint64_t first = 0, seeds = 1;
  Plan plan{500, 2500};
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] {
      return ++i < argc ? std::string(argv[i]) : throw std::invalid_argument(argument + " needs a value");
    };
    if (argument == "--device")
      device = Device(value());
    else if (argument == "--seeds")
      seeds = std::stoul(value());
    else if (argument == "--first-seed")
      first = std::stoul(value());
    else if (argument == "--steps")
      plan.steps = std::stol(value());
    else if (argument == "--planned")
      plan.planned = std::stol(value());
    else if (argument == "--variant")
      wanted.push_back(value());
    else {
      const size_t equals = argument.find('=');
      if (equals == std::string::npos) throw std::invalid_argument(argument + " is not NAME=FILE,FILE...");
      std::vector<std::filesystem::path> files;
      for (size_t at = equals + 1; at <= argument.size();) {
        const size_t end = std::min(argument.find(',', at), argument.size());
        files.emplace_back(argument.substr(at, end - at));
        at = end + 1;
      }
      for (const Variant& v : kVariants)
        if (wanted.empty() || std::ranges::count(wanted, v.name))
          for (uint64_t seed = first; seed < first + seeds; ++seed)
            run(v, argument.substr(0, equals), files, seed, plan, device);
    }
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
