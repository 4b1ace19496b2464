#include "lorry/profile/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lorry/autograd/engine.h"
#include "lorry/base/error.h"
#include "lorry/base/span.h"
#include "lorry/base/units.h"
#include "lorry/memory/caching_allocator.h"
#include "lorry/memory/meta_allocator.h"
#include "lorry/ops/random.h"
#include "lorry/profile/block_log.h"

namespace lorry::profile {
namespace {

constexpr const char* kWhere = "forecast_memory";

int64_t block_on_cpu(int64_t bytes) { return memory::CachingAllocator::block_bytes(bytes, memory::kLeastUnit); }
int64_t block_on_gpu(int64_t bytes) { return memory::CachingAllocator::block_bytes(bytes, memory::Policy().unit); }

/// Gives the default generator the state of before.
class SameDraws {
 public:
  SameDraws() : state_(default_generator().state()) {}
  ~SameDraws() { default_generator().set_state(state_); }
  SameDraws(const SameDraws&) = delete;
  SameDraws& operator=(const SameDraws&) = delete;

 private:
  Generator::State state_;
};

/// No profiler hears of this thread's spans.
class Unheard {
 public:
  Unheard() : before_(std::exchange(lorry::detail::t_spans_heard, false)) {}
  ~Unheard() { lorry::detail::t_spans_heard = before_; }
  Unheard(const Unheard&) = delete;
  Unheard& operator=(const Unheard&) = delete;

 private:
  bool before_;
};

/// "block0.mlp.up" of "block0.mlp.up.weight".
std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// The rows of a forecast while they are filled in.
class Rows {
 public:
  explicit Rows(nn::Module& model) {
    for (const auto& [path, module] : model.named_modules()) at(path);
  }
  ModuleMemory& at(const std::string& path) {
    const auto [found, is_new] = index_.emplace(path, rows_.size());
    if (is_new) rows_.push_back({.path = path});
    return rows_[found->second];
  }
  std::vector<ModuleMemory> take() {
    std::erase_if(rows_,
                  [](const ModuleMemory& x) { return x.parameters + x.gradients + x.buffers + x.activations == 0; });
    return std::move(rows_);
  }

 private:
  std::vector<ModuleMemory> rows_;
  std::map<std::string, size_t> index_;
};

/// Runs a step on meta under a log, and fills in the forecast.
class Forecaster {
 public:
  Forecaster(Device device, const std::function<TrainingStep(Device)>& make)
      : there_(memory::stand_in(device)),
        size_(device.is_cpu() ? block_on_cpu : block_on_gpu),
        log_(to_string(there_), size_) {
    forecast_.device = device;
    if (!Scope::path().empty()) outer_ = Scope::path() + "/";
    log_.set_phase("making the step");
    step_ = make(there_);
    check();
    parameters_ = step_.model->named_parameters();
  }

  MemoryForecast run() {
    Rows rows(*step_.model);
    add_parameters(rows);
    const int64_t made = log_.bytes() - gradients();
    forecast_.rest = made - forecast_.parameters - forecast_.buffers;
    log_.reset_peak();
    pass(nullptr);  // the first one makes the optimizer's states
    forecast_.states = log_.bytes() - gradients() - made;
    pass(&rows);
    log_.require_complete(kWhere);
    const BlockLog::Peak& peak = log_.peak();
    forecast_.peak = peak.bytes, forecast_.peak_phase = peak.phase, forecast_.peak_operator = peak.made_by;
    forecast_.peak_module = module_path(peak.path);
    forecast_.modules = rows.take();
    return std::move(forecast_);
  }

 private:
  void check() const {
    if (step_.model == nullptr || !step_.loss)
      raise_as<ValueError>(kWhere, "the step has no {}; expected a model and a loss",
                           step_.model == nullptr ? "model" : "loss");
    if (step_.batches < 1)
      raise_as<ValueError>(kWhere, "batches is not positive; got {}; expected 1 or more", step_.batches);
    for (const auto& [name, x] : step_.model->named_parameters())
      if (x.device() != there_)
        raise_as<DeviceError>(kWhere,
                              "parameter '{}' is on {}; expected everything on {}, the device that the "
                              "function was given",
                              name, x.device(), there_);
  }

  int64_t block(const Tensor& x) const { return x.defined() && x.nbytes() > 0 ? size_(x.nbytes()) : 0; }
  /// Of all gradients that exist.
  int64_t gradients() const {
    int64_t sum = 0;
    for (const auto& [name, x] : parameters_) sum += block(x.grad());
    return sum;
  }
  std::string module_path(const std::string& path) const {
    return path.starts_with(outer_) ? path.substr(outer_.size()) : path;
  }

  void add_parameters(Rows& rows) {
    for (const auto& [name, x] : parameters_) {
      rows.at(module_of(name)).parameters += block(x);
      forecast_.parameters += block(x);
    }
    for (const auto& [name, x] : step_.model->named_buffers()) {
      rows.at(module_of(name)).buffers += block(x);
      forecast_.buffers += block(x);
    }
  }

  /// One step. rows: where to count what is kept.
  void pass(Rows* rows) {
    for (int64_t i = 0; i < std::min<int64_t>(step_.batches, 2); ++i) {  // those after the second are like it
      log_.set_phase("forward");
      const int64_t before = log_.taken();
      Tensor loss = step_.loss();
      if (rows != nullptr && i == 0) add_activations(*rows, before);
      log_.set_phase("backward");
      loss.backward();
    }
    if (rows != nullptr) add_gradients(*rows);
    log_.set_phase("update");
    if (step_.update) step_.update();
  }

  /// Blocks that the forward pass took and that still exist.
  void add_activations(Rows& rows, int64_t before) {
    for (const auto& [address, x] : log_.blocks()) {
      if (x.number < before) continue;
      rows.at(module_path(x.path)).activations += x.bytes;
      forecast_.activations += x.bytes;
    }
  }
  void add_gradients(Rows& rows) {
    for (const auto& [name, x] : parameters_) {
      rows.at(module_of(name)).gradients += block(x.grad());
      forecast_.gradients += block(x.grad());
    }
  }

  const Device there_;
  int64_t (*const size_)(int64_t);
  std::string outer_;
  BlockLog log_;
  TrainingStep step_;  // goes before the log
  std::vector<nn::NamedTensor> parameters_;
  MemoryForecast forecast_;
};

/// The first `depth` components of a path.
std::string beginning(const std::string& path, int64_t depth) {
  size_t at = 0;
  for (int64_t i = 0; i < depth; ++i) {
    at = path.find('.', at == 0 ? 0 : at + 1);
    if (at == std::string::npos) return path;
  }
  return path.substr(0, at);
}

std::string cell(int64_t bytes) { return bytes == 0 ? "-" : bytes_text(bytes); }

}  // namespace

MemoryForecast forecast_memory(Device device, const std::function<TrainingStep(Device)>& make) {
  if (device.is_meta())
    raise_as<DeviceError>(kWhere, "meta has no memory; got {}; expected the device that is to train", device);
  const ModeScope quiet(0, (kListenerModes & ~kGradMode) | kInferenceMode);
  const ModeScope gradients(kGradMode, 0);
  const Unheard unheard;
  const SameDraws same_draws;
  const memory::Estimate estimate;
  return Forecaster(device, make).run();
}

std::string to_string(const MemoryForecast& f, int64_t depth) {
  if (depth < 1) raise_as<ValueError>("to_string", "depth is not positive; got {}; expected 1 or more", depth);
  std::vector<ModuleMemory> rows;
  for (const ModuleMemory& x : f.modules) {
    const std::string path = beginning(x.path, depth);
    auto row = std::ranges::find(rows, path, &ModuleMemory::path);
    if (row == rows.end()) row = rows.insert(rows.end(), {.path = path});
    row->parameters += x.parameters, row->gradients += x.gradients, row->buffers += x.buffers;
    row->activations += x.activations;
  }
  size_t width = 20;
  for (const ModuleMemory& x : rows) width = std::max(width, x.path.size());
  std::string text =
      fmt::format("{:<{}} {:>11} {:>11} {:>11}\n", "module", width, "parameters", "gradients", "activations");
  const auto add = [&](const std::string& name, int64_t parameters, int64_t gradients, int64_t activations) {
    text +=
        fmt::format("{:<{}} {:>11} {:>11} {:>11}\n", name, width, cell(parameters), cell(gradients), cell(activations));
  };
  for (const ModuleMemory& x : rows)
    add(x.path.empty() ? "outside its modules" : x.path, x.parameters + x.buffers, x.gradients, x.activations);
  add("all", f.parameters + f.buffers, f.gradients, f.activations);
  const auto line = [&](const char* what, int64_t bytes, const std::string& more = "") {
    text += fmt::format("{:<{}} {:>11}{}\n", what, width, cell(bytes), more);
  };
  line("optimizer's states", f.states);
  line("batch and constants", f.rest);
  line("peak", f.peak,
       fmt::format("  in {}{}", f.peak_phase == "update" ? "the update" : "the " + f.peak_phase + " pass",
                   f.peak_operator.empty() ? "" : ", at " + f.peak_operator));
  return text;
}

std::string to_json(const MemoryForecast& f) {
  nlohmann::ordered_json json = {{"device", to_string(f.device)},
                                 {"parameters_bytes", f.parameters},
                                 {"gradients_bytes", f.gradients},
                                 {"buffers_bytes", f.buffers},
                                 {"activations_bytes", f.activations},
                                 {"states_bytes", f.states},
                                 {"rest_bytes", f.rest},
                                 {"peak_bytes", f.peak},
                                 {"peak_phase", f.peak_phase},
                                 {"peak_operator", f.peak_operator},
                                 {"peak_module", f.peak_module}};
  json["modules"] = nlohmann::ordered_json::array();
  for (const ModuleMemory& x : f.modules)
    json["modules"].push_back({{"path", x.path},
                               {"parameters_bytes", x.parameters},
                               {"gradients_bytes", x.gradients},
                               {"buffers_bytes", x.buffers},
                               {"activations_bytes", x.activations}});
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lorry::profile
