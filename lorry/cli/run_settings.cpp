#include "lorry/cli/run_settings.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <type_traits>

#include "lorry/base/units.h"
#include "lorry/cli/checks.h"
#include "lorry/optim/optimizers.h"

namespace lorry::cli {
namespace {

/// Settings with which a preset trains well.
struct Recipe {
  const char* preset;
  int64_t batch;
  double lr;
  int64_t steps;
};
constexpr Recipe kRecipes[] = {
    {"nano", 8, 3e-3, 3000},
    {"tiny", 16, 1e-3, 5000},
    {"small", 16, 6e-4, 20'000},
    {"gpt2", 8, 6e-4, 100'000},
};
/// The learning rate with which an optimizer trains as well as Adam, as a multiple of Adam's.
struct Proportion {
  std::string_view optimizer;
  double of_adam;
};
constexpr Proportion kProportions[] = {{"adadelta", 300}, {"adagrad", 3}, {"asgd", 30},
                                       {"lion", 0.1},     {"rprop", 0.1}, {"sgd", 30}};

double proportion(std::string_view optimizer) {
  for (const Proportion& p : kProportions)
    if (p.optimizer == optimizer) return p.of_adam;
  return 1;
}

/// The seed, which is saved as text. The file may be damaged.
uint64_t seed_of(const io::Settings& config) {
  const auto text = io::setting<std::string>(config, "seed");
  const std::optional<uint64_t> seed = parse_seed(text);
  require<FormatError>(seed.has_value(), "checkpoint: setting 'seed': {}", check_seed(text));
  return *seed;
}

/// Whether the config sets a property; older runs do not have it, and neither do their models.
bool has(const io::Settings& config, const char* property) {
  return config.contains(property) && io::setting<bool>(config, property);
}

}  // namespace

double usual_decay(std::string_view optimizer) {
  double decay = 0;
  optim::with_options(optimizer, [&]<class Options>(const Options& options) {
    constexpr bool kDecouples =
        std::is_same_v<Options, optim::AdamWOptions> || std::is_same_v<Options, optim::LionOptions>;
    if constexpr (kDecouples || requires { options.decoupled_weight_decay; })  // the trainer sets it
      decay = 0.1;
    else if constexpr (requires { options.weight_decay; })
      decay = options.weight_decay;
  });
  return decay;
}

nn::GPTConfig model_config(const TrainSettings& settings) {
  nn::GPTConfig config = nn::gpt_preset(settings.preset);
  config.vocab = settings.vocab;
  if (settings.context > 0) config.context = settings.context;
  if (settings.rotary) config.rotary = *settings.rotary;
  if (settings.scale_embeddings) config.scale_embeddings = *settings.scale_embeddings;
  return config;
}

nn::GPTConfig model_config(const io::Settings& config) {
  nn::GPTConfig c;
  c.vocab = io::setting<int64_t>(config, "vocab");
  c.context = io::setting<int64_t>(config, "context");
  c.layers = io::setting<int64_t>(config, "layers");
  c.heads = io::setting<int64_t>(config, "heads");
  c.width = io::setting<int64_t>(config, "width");
  c.rotary = has(config, "rotary");
  c.scale_embeddings = has(config, "scale_embeddings");
  return c;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.emplace_back(recipe.preset);
  return names;
}

std::string preset_table() {
  constexpr const char* kRow = "  {:<7} {:>6} {:>6} {:>11} {:>6} {:>8} {:>7} {:>8}\n";
  std::string table = fmt::format(kRow, "preset", "layers", "width", "parameters", "batch", "context", "rate", "steps");
  for (const std::string& name : preset_names()) {
    TrainSettings s{.preset = name};
    complete(s, /*timed=*/false);
    const nn::GPTConfig model = model_config(s);
    table +=
        fmt::format(kRow, name, model.layers, model.width,
                    quantity(static_cast<double>(nn::parameter_count(model)), ""), s.batch, s.context, s.lr, *s.steps);
  }
  return table;
}

void check_against_tensors(const io::Checkpoint& checkpoint) {
  const io::TrainingState& state = checkpoint.state;
  const auto agree = [](std::string_view setting, int64_t said, std::string_view where, int64_t found) {
    require<FormatError>(said == found, "checkpoint: state.json says {} {}, and {} has {}; expected the same", setting,
                         said, where, found);
  };
  const auto rows = [&](const std::string& name, int64_t dim) {
    const auto found = checkpoint.model.find(name);
    require<FormatError>(found != checkpoint.model.end() && found->second.dim() == 2,
                         "checkpoint: model.safetensors has no matrix '{}'", name);
    return found->second.size(dim);
  };
  std::set<std::string> blocks;
  for (const auto& [name, tensor] : checkpoint.model)
    if (name.starts_with("block")) blocks.insert(name.substr(0, name.find('.')));

  const auto preset = io::setting<std::string>(state.config, "preset");
  nn::GPTConfig of_preset = nn::gpt_preset(preset);
  const nn::GPTConfig config = model_config(state.config);
  constexpr std::string_view kModel = "model.safetensors";
  agree("layers", config.layers, kModel, static_cast<int64_t>(blocks.size()));
  agree("width", config.width, kModel, rows("tokens.weight", 1));
  agree("vocab", config.vocab, kModel, rows("tokens.weight", 0));
  const bool learned = checkpoint.model.contains("positions.weight");
  require<FormatError>(config.rotary != learned,
                       "checkpoint: state.json says that positions are {}, and model.safetensors has {} of them; "
                       "expected one for learned positions",
                       config.rotary ? "rotary" : "learned", learned ? "a table" : "no table");
  if (learned) agree("context", config.context, kModel, rows("positions.weight", 0));
  const std::string of = fmt::format("preset {}", preset);
  agree("layers", config.layers, of, of_preset.layers);
  agree("width", config.width, of, of_preset.width);
  agree("heads", config.heads, of, of_preset.heads);

  const auto steps = io::setting<int64_t>(state.config, "steps");
  require<FormatError>(state.step <= steps, "checkpoint: state.json says steps {}, and step {} has been taken", steps,
                       state.step);
  // Steps that an f16 run skipped because of an overflow are not counted by the optimizer.
  const bool skips = io::setting<std::string>(state.config, "dtype") == "f16";
  for (const auto& [name, tensor] : checkpoint.optimizer) {
    if (!name.ends_with(".step") || tensor.numel() != 1) continue;
    const auto taken = static_cast<int64_t>(tensor.item<double>());
    if (!skips || taken > state.step) agree("step", state.step, "optimizer.safetensors", taken);
  }
}

void complete(TrainSettings& s, bool timed) {
  const auto recipe =
      std::find_if(std::begin(kRecipes), std::end(kRecipes), [&](const Recipe& r) { return r.preset == s.preset; });
  require<ValueError>(recipe != std::end(kRecipes), "train: unknown preset '{}'; expected {}", s.preset,
                      listed(preset_names()));
  if (s.batch == 0) s.batch = recipe->batch;
  if (s.context == 0) s.context = model_config(s).context;
  if (s.lr == 0) s.lr = recipe->lr * proportion(s.optimizer);
  if (!s.weight_decay) s.weight_decay = usual_decay(s.optimizer);
  if (timed) return;
  if (!s.steps) s.steps = recipe->steps;
  if (s.eval_every == 0) s.eval_every = default_eval_every(*s.steps);
  if (!s.warmup) s.warmup = usual_warmup(*s.steps);
}

int64_t usual_warmup(int64_t steps) {
  constexpr int64_t kLongest = 100;
  return std::min(kLongest, std::max(steps / 10, std::min(kEnoughWarmup, steps / 3)));
}

int64_t default_eval_every(int64_t steps) { return std::max<int64_t>(1, steps / 10); }

io::Settings to_config(const TrainSettings& s, const std::vector<std::string>& texts) {
  std::string files;  // one per line, because a setting is a single value
  for (const std::string& text : texts) files += std::filesystem::absolute(text).string() + "\n";
  const nn::GPTConfig model = model_config(s);
  return {{"preset", s.preset},
          {"vocab", model.vocab},
          {"layers", model.layers},
          {"heads", model.heads},
          {"width", model.width},
          {"rotary", model.rotary},
          {"scale_embeddings", model.scale_embeddings},
          {"steps", *s.steps},
          {"batch", s.batch},
          {"accumulate", s.accumulate},
          {"context", s.context},
          {"lr", s.lr},
          {"warmup", *s.warmup},
          {"weight_decay", *s.weight_decay},
          {"clip", s.clip},
          {"dtype", std::string(name(s.dtype))},
          {"optimizer", s.optimizer},
          {"execution", s.execution},
          {"states", optim::name(s.states)},
          {"masters", std::string(s.masters ? name(*s.masters) : "")},
          {"placement", std::string(name(s.placement))},
          {"eval_every", s.eval_every},
          {"seed", std::to_string(s.seed)},  // as text, because a seed may exceed a signed number
          {"texts", files}};
}

TrainSettings from_config(const io::Settings& config, std::vector<std::string>& texts) {
  TrainSettings s;
  s.preset = io::setting<std::string>(config, "preset");
  s.vocab = io::setting<int64_t>(config, "vocab");
  s.steps = io::setting<int64_t>(config, "steps");
  s.batch = io::setting<int64_t>(config, "batch");
  if (config.contains("accumulate"))
    s.accumulate = io::setting<int64_t>(config, "accumulate");  // missing in older runs
  s.context = io::setting<int64_t>(config, "context");
  s.rotary = has(config, "rotary");
  s.scale_embeddings = has(config, "scale_embeddings");
  s.lr = io::setting<double>(config, "lr");
  s.warmup = io::setting<int64_t>(config, "warmup");
  s.weight_decay = io::setting<double>(config, "weight_decay");
  s.clip = io::setting<double>(config, "clip");
  s.dtype = parse_dtype(io::setting<std::string>(config, "dtype"));
  s.optimizer = io::setting<std::string>(config, "optimizer");
  s.execution = io::setting<std::string>(config, "execution");
  if (config.contains("states")) {  // missing in older runs
    s.states = optim::parse_states(io::setting<std::string>(config, "states"));
    if (const auto masters = io::setting<std::string>(config, "masters"); !masters.empty())
      s.masters = optim::parse_masters(masters);
    s.placement = optim::parse_placement(io::setting<std::string>(config, "placement"));
  }
  s.eval_every = io::setting<int64_t>(config, "eval_every");
  s.seed = seed_of(config);
  require<FormatError>(
      *s.steps > 0 && s.batch > 0 && s.accumulate > 0 && s.context > 0 && *s.warmup >= 0 && s.eval_every >= 0,
      "checkpoint: settings are out of range; got steps {}, batch {}, accumulate {}, context {}, warmup {}, eval_every "
      "{}",
      *s.steps, s.batch, s.accumulate, s.context, *s.warmup, s.eval_every);
  if (texts.empty()) {
    std::istringstream files(io::setting<std::string>(config, "texts"));
    for (std::string line; std::getline(files, line);) texts.push_back(line);
  }
  return s;
}

}  // namespace lorry::cli
