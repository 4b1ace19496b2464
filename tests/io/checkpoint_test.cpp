#include "lorry/io/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <random>

#include "lorry/ops/ops.h"
#include "tests/io/scratch.h"

namespace lorry::io::test {
namespace {

Tensor filled(const Dims& sizes, double value, DType dtype = kF32) {
  const Tensor x = empty(sizes, {.dtype = dtype});
  x.fill_(value);
  return x;
}

/// Every part says which step it is of.
Checkpoint checkpoint(int64_t step, int64_t elements = 1000) {
  const auto value = static_cast<double>(step);
  Checkpoint c;
  c.model = {{"layer.weight", filled({elements}, value)}, {"layer.bias", filled({3}, value, kBF16)}};
  c.optimizer = {{"layer.weight.exp_avg", filled({elements}, value)}, {"layer.weight.step", filled({}, value, kF64)}};
  c.state.step = step;
  c.state.seed = ~uint64_t{0};
  c.state.random_offset = 12;
  c.state.data_position = static_cast<uint64_t>(step) * 64;
  c.state.schedule = {{"kind", std::string("cosine")}, {"lr", 0.1 + 0.2}};
  c.state.config = {
      {"layers", int64_t{4}}, {"tied", true}, {"dropout", 0.0}, {"text", std::string("caf\xc3\xa9 \"x\"\n")}};
  return c;
}

int64_t step_of(const Checkpoint& c) {
  const auto step = static_cast<double>(c.state.step);
  for (const TensorMap* part : {&c.model, &c.optimizer})
    for (const auto& [name, tensor] : *part)
      for (const double value : tensor.to(kF64).to_vector<double>()) EXPECT_EQ(value, step) << name;
  return c.state.step;
}

TEST(Checkpoint, what_is_saved_is_loaded_to_the_bit) {
  const Scratch scratch;
  const Checkpoint saved = checkpoint(7);
  save_checkpoint(scratch / "run", saved);
  EXPECT_EQ(scratch.names("run"), (std::set<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}));
  const Checkpoint loaded = load_checkpoint(scratch / "run");
  EXPECT_EQ(loaded.state, saved.state);
  EXPECT_EQ(step_of(loaded), 7);
  EXPECT_EQ(loaded.model.at("layer.bias").dtype(), kBF16);
}

TEST(Checkpoint, numbers_keep_their_bits_and_their_kinds) {
  const Scratch scratch;
  Checkpoint saved = checkpoint(1);
  for (const double value : {0.1, 1.0, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 3.0000000000000004})
    saved.state.config[fmt::format("{}", value)] = value;
  saved.state.config["smallest"] = INT64_MIN;
  saved.state.config["largest"] = INT64_MAX;
  save_checkpoint(scratch / "run", saved);
  const Settings config = load_checkpoint(scratch / "run").state.config;
  EXPECT_EQ(config, saved.state.config);
  EXPECT_TRUE(std::signbit(setting<double>(config, "-0")));
}

TEST(Checkpoint, settings_are_asked_for_by_type) {
  const Settings config = checkpoint(1).state.config;
  EXPECT_EQ(setting<int64_t>(config, "layers"), 4);
  EXPECT_EQ(setting<double>(config, "layers"), 4.0);
  EXPECT_EQ(setting<bool>(config, "tied"), true);
  EXPECT_EQ(message<FormatError>([&] { setting<int64_t>(config, "tied"); }),
            "checkpoint: setting 'tied' has another type than expected");
  EXPECT_EQ(message<FormatError>([&] { setting<int64_t>(config, "heads"); }), "checkpoint: setting 'heads' is missing");
}

TEST(Checkpoint, what_json_cannot_hold_is_refused_before_anything_is_written) {
  const Scratch scratch;
  Checkpoint c = checkpoint(1);
  c.state.config["lr"] = INFINITY;
  EXPECT_EQ(message<ValueError>([&] { save_checkpoint(scratch / "run", c); }),
            "checkpoint: setting 'lr' is not finite; got inf");
  c.state.config["lr"] = std::string("\xff");
  EXPECT_EQ(message<ValueError>([&] { save_checkpoint(scratch / "run", c); }),
            "checkpoint: a setting is not UTF-8 text");
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Checkpoint, a_directory_without_a_checkpoint_is_an_error) {
  const Scratch scratch;
  EXPECT_EQ(message<IoError>([&] { load_checkpoint(scratch / "run"); }),
            "cannot open '" + (scratch / "run/state.json").string() + "': No such file or directory");
  EXPECT_EQ(message<IoError>([&] { save_checkpoint(scratch / "a/b", checkpoint(1)); }),
            "cannot create '" + (scratch / "a/b").string() + "': No such file or directory");
}

TEST(Checkpoint, a_missing_file_is_named) {
  const Scratch scratch;
  const std::string run = (scratch / "run").string();
  save_checkpoint(run, checkpoint(1));
  std::filesystem::remove(scratch / "run/optimizer.safetensors");
  const std::string expected = "; expected model.safetensors, optimizer.safetensors, state.json";
  EXPECT_EQ(message<IoError>([&] { load_checkpoint(run); }),
            "checkpoint '" + run + "' is incomplete: there is no optimizer.safetensors" + expected);
  std::filesystem::remove(scratch / "run/state.json");
  EXPECT_EQ(message<IoError>([&] { load_checkpoint(run); }),
            "checkpoint '" + run + "' is incomplete: there is no optimizer.safetensors and no state.json" + expected);
}

TEST(Checkpoint, a_damaged_file_is_named) {
  const Scratch scratch;
  const std::string state = (scratch / "run/state.json").string();
  save_checkpoint(scratch / "run", checkpoint(1));
  const std::string good = get(state);
  const auto text = [&](const std::string& content) {
    put(state, content);
    return message<FormatError>([&] { load_checkpoint(scratch / "run"); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    changed.replace(changed.find(from), from.size(), to);
    return text(changed);
  };
  EXPECT_EQ(text(""), "checkpoint '" + state + "': the file is not a JSON object");
  EXPECT_EQ(text(good.substr(0, good.size() / 2)), "checkpoint '" + state + "': the file is not a JSON object");
  EXPECT_EQ(text(std::string(100'000, '[')), "checkpoint '" + state + "': the file is not a JSON object");
  EXPECT_EQ(text("{}"), "checkpoint '" + state + "': the file is not the state of a checkpoint");
  EXPECT_EQ(with("\"version\": 1", "\"version\": 2"),
            "checkpoint '" + state + "': version is not known; got 2; expected 1");
  EXPECT_EQ(with("\"step\": 1", "\"step\": -1"), "checkpoint '" + state + "': 'step' is missing or no whole number");
  EXPECT_EQ(with("\"seed\"", "\"sead\""), "checkpoint '" + state + "': 'seed' is missing or no whole number");
  EXPECT_EQ(with("\"layers\": 4", "\"layers\": [4]"),
            "checkpoint '" + state + "': setting 'layers' in 'config' is neither a number, a truth value nor text");
  put(state, good);
  put(scratch / "run/model.safetensors", "");
  EXPECT_EQ(message<FormatError>([&] { load_checkpoint(scratch / "run"); }),
            "safetensors '" + (scratch / "run/model.safetensors").string() +
                "': file is too short for a header length; got 0 bytes; expected at least 8");
}

TEST(Checkpoint, a_full_disk_keeps_the_former_checkpoint) {
  const Scratch scratch;
  save_checkpoint(scratch / "run", checkpoint(1));
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limited{10'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limited);
  EXPECT_THROW(save_checkpoint(scratch / "run", checkpoint(2, 100'000)), IoError);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(step_of(load_checkpoint(scratch / "run")), 1);
  EXPECT_EQ(scratch.names(), std::set<std::string>{"run"});
}

TEST(Checkpoint, a_writer_killed_at_any_moment_leaves_one_that_loads) {
  const Scratch scratch;
  save_checkpoint(scratch / "run", checkpoint(0));
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int64_t newest = 0;
  for (int round = 0; round < 10; ++round) {
    kill_while_saving(random, [&](int64_t i) { save_checkpoint(scratch / "run", checkpoint(newest + i, 20'000)); });
    const int64_t found = step_of(load_checkpoint(scratch / "run"));
    EXPECT_GT(found, newest);
    newest = found;
  }
  save_checkpoint(scratch / "run", checkpoint(newest + 1));
  EXPECT_EQ(scratch.names(), std::set<std::string>{"run"});
}

}  // namespace
}  // namespace lorry::io::test
