#include "lorry/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>

#include "lorry/bench/build_facts.h"
#include "lorry/bench/lessons.h"
#include "lorry/cli/checks.h"
#include "lorry/cli/options_profile.h"
#include "lorry/cli/output.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/train_suite.h"
#include "lorry/cli/validators.h"
#include "lorry/device/device.h"
#include "lorry/optim/optimizers.h"

namespace lorry::cli {
namespace {

/// Adds a flag whose value is parsed by a function of the library; the function's error becomes the flag's.
template <class T, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, T& value, Parse parse, const std::string& help) {
  return app.add_option_function<std::string>(
      name,
      [&value, parse, name](const std::string& text) {
        try {
          value = parse(text);
        } catch (const Error& error) {
          // The parser's message begins with the flag's name, which CLI11 adds too.
          const std::string_view what = error.what(), own = std::string_view(name).substr(2);
          const bool named = what.starts_with(own) && what.substr(own.size()).starts_with(": ");
          throw CLI::ValidationError(name, std::string(named ? what.substr(own.size() + 2) : what));
        }
      },
      help);
}

/// Adds an optimizer's memory options, as values, or as optionals that stay unset without the flag. about: the
/// beginning of each help text.
template <class States, class Masters, class Placement>
std::vector<CLI::Option*> add_optimizer_memory(CLI::App& app, States& states, Masters& masters, Placement& placement,
                                               const std::string& about) {
  return {add_parsed(app, "--states", states, optim::parse_states,
                     about + "Types of the optimizer's states: f32, bf16 or q8 (8 bits), for all or one after the "
                             "other, as in bf16,q8")
              ->type_name("TYPES"),
          add_parsed(app, "--masters", masters, optim::parse_masters,
                     about + "What it keeps beside parameters of 16 bits: none, f32 (default), split or stochastic")
              ->type_name("KIND"),
          add_parsed(app, "--placement", placement, optim::parse_placement,
                     about + "Where states and masters are stored: device, pinned or managed")
              ->type_name("PLACE")};
}

void add_common(CLI::App& app, CommonOptions& o) {
  app.add_option("--json", o.json, "Also write the figures to FILE as JSON; - is standard output")->type_name("FILE");
  add_parsed(
      app, "--device", o.device,
      [](const std::string& text) {
        const Device device = Device(text);
        require<ValueError>(!device.is_meta(), "meta computes nothing; got '{}'; expected cpu, cuda or cuda:N", text);
        device::require_device(device, "device");
        return device;
      },
      "Where to compute: cpu, cuda or cuda:N (default: cuda where there is one)")
      ->type_name("DEVICE");
  app.add_option("--threads", o.threads, "Threads to compute with (default: every processor this process may use)")
      ->check(whole(1, 1024))
      ->type_name("N");
  app.add_option("--seed", o.seed, "Seed of every random number: a whole number from 0 to 2^64 - 1")
      ->capture_default_str()
      ->check(validator(check_seed))
      ->type_name("S");
  app.add_flag("--quiet", o.quiet, "No progress on standard error");
}

void add_info(CLI::App& app, InfoOptions& o) {
  app.add_flag("--measure", o.measure,
               "Also the machine's ceilings: measured in about two seconds a device, then kept");
  app.add_flag("--remeasure", o.remeasure, "Measure the ceilings again, although they are known");
  app.add_option("DIR", o.run, "Folder of a training run, or its checkpoint: show that run in place of the machine")
      ->type_name("");
  app.callback([&app] {
    for (const char* measure : {"--measure", "--remeasure"})
      if (app.count("DIR") && app.count(measure)) throw CLI::ExcludesError("DIR", measure);
  });
}

/// Options of training, except the optimizer's memory.
std::vector<CLI::Option*> add_optimizer_settings(CLI::App& app, TrainSettings& s) {
  std::vector<std::string> decaying = optim::optimizer_names();
  std::erase_if(decaying, [](const std::string& name) { return usual_decay(name) == 0; });
  return {
      app.add_option("--lr", s.lr, "Largest learning rate (default: the preset's, in proportion for the optimizer)")
          ->check(above_zero())
          ->type_name("LR"),
      app.add_option(
             "--warmup", s.warmup,
             "Steps over which the learning rate rises (default: a tenth of the run, but at least 30 or a third "
             "of it; at most 100 with --steps)")
          ->check(whole(0))
          ->type_name("N"),
      app.add_option("--weight-decay", s.weight_decay,
                     fmt::format("Decay of weight matrices (default: 0.1 for optimizers that shrink them directly: {}; "
                                 "0 where it is added to gradients)",
                                 fmt::join(decaying, ", ")))
          ->check(from_zero())
          ->type_name("DECAY"),
      app.add_option("--clip", s.clip, "Largest norm of all gradients together; 0 for no limit")
          ->capture_default_str()
          ->check(from_zero())
          ->type_name("NORM"),
      add_parsed(
          app, "--dtype", s.dtype,
          [](const std::string& text) {
            const DType dtype = parse_dtype(text);
            require<ValueError>(dtype == kF32 || dtype == kBF16 || dtype == kF16,
                                "'{}' is not a type to train in; expected f32, bf16 or f16", text);
            return dtype;
          },
          "Type of parameters and activations: f32, bf16 or f16")
          ->type_name("TYPE"),
      app.add_option("--optimizer", s.optimizer, fmt::format("One of {}", fmt::join(optim::optimizer_names(), ", ")))
          ->capture_default_str()
          ->type_name("NAME")
          ->check(one_of(optim::optimizer_names())),
      app.add_option("--execution", s.execution, "How the optimizer runs: automatic, loop, foreach, fused or compiled")
          ->capture_default_str()
          ->check(one_of({"automatic", "loop", "foreach", "fused", "compiled"}))
          ->type_name("MODE"),
  };
}

/// Options that determine the numbers of a run; a resumed run takes them from its checkpoint.
std::vector<CLI::Option*> add_settings(CLI::App& app, TrainOptions& o) {
  TrainSettings& s = o.settings;
  std::vector<CLI::Option*> settings = {
      app.add_option("--preset", s.preset, "Size of the model: " + listed(preset_names()))
          ->capture_default_str()
          ->check(one_of(preset_names()))
          ->type_name("NAME"),
      app.add_option("--max-seconds", o.max_seconds,
                     "Train for N seconds: the steps and the learning rate follow the time that is left; validation "
                     "and checkpoints take a tenth of it at most")
          ->check(above_zero())
          ->type_name("N"),
      app.add_option("--batch", s.batch, "Sequences in a batch (default: the preset's)")
          ->check(whole(1, 1 << 20))
          ->type_name("N"),
      app.add_option("--accumulate", s.accumulate,
                     "Batches in a step: their gradients are added up, their losses averaged")
          ->capture_default_str()
          ->check(whole(1, 1 << 20))
          ->type_name("N"),
      app.add_option("--context", s.context, "Bytes in a sequence (default: the preset's)")
          ->check(whole(1, 1 << 20))
          ->type_name("N"),
  };
  std::ranges::copy(add_optimizer_settings(app, s), std::back_inserter(settings));
  settings.push_back(
      app.add_option("--eval-every", s.eval_every, "Measure the validation loss every N steps (default: ten times)")
          ->check(whole(1))
          ->type_name("N"));
  std::ranges::copy(add_optimizer_memory(app, s.states, s.masters, s.placement, ""), std::back_inserter(settings));
  return settings;
}

void add_processes(CLI::App& app, TrainOptions& o) {
  CLI::Option* const devices =
      app.add_option("--devices", o.devices,
                     "Train on N GPUs of this machine, or with --device cpu in N processes, started by mpirun; each "
                     "takes an equal part of every batch")
          ->capture_default_str()
          ->check(whole(1, 1024))
          ->type_name("N");
  app.add_option("--restarts", o.restarts,
                 "With --devices: when a process fails, start all of them again from the last checkpoint, N times at "
                 "most")
      ->needs(devices)
      ->check(whole(0, 1'000'000))
      ->type_name("N");
  app.add_flag("--shard", o.shard,
               "With several processes: each steps a part of the parameters, and has only that part of the states");
}

void add_train(CLI::App& app, TrainOptions& o) {
  app.footer("Presets, over bytes (gpt2: the layers of GPT-2, which has 124 M parameters with its own tokens):\n" +
             preset_table() + "After its first steps, a run reports how long it will take.");
  app.add_option("--text", o.texts, "Text files to learn, read as bytes")->type_name("FILE");
  app.add_option("--out", o.out, "Folder for checkpoints, metrics and the loss curve")
      ->capture_default_str()
      ->type_name("DIR");
  CLI::Option* resume =
      app.add_option("--resume", o.resume,
                     "Go on with the run in DIR, with its settings; --text names its text where that has moved")
          ->type_name("DIR");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "Save a checkpoint every N steps (default: with each validation)")
      ->check(whole(1))
      ->type_name("N");

  app.add_option("--steps", o.settings.steps,
                 "Steps to train; with --resume, the run ends at N steps in all: more or fewer than before, but not "
                 "fewer than it has taken")
      ->check(whole(1, int64_t{1} << 40))
      ->type_name("N");
  const std::vector<CLI::Option*> settings = add_settings(app, o);
  CLI::Option* const compile =
      app.add_flag("--compile", o.compile, "Compile each step as one function: the same numbers, in fewer passes");
  app.add_flag("--epilogues", o.epilogues,
               "With --compile, in 16 bits on a GPU: fuse products and sums too; losses differ in their last digits")
      ->needs(compile);
  app.add_flag("--replay", o.replay,
               "Capture one step and replay it: the same numbers, without the host's work for each operator");
  add_processes(app, o);
  app.add_flag("--forecast", o.forecast,
               "Train nothing: print how much memory a step of this model and batch takes, layer by layer, and whether "
               "the device has it");
  app.callback([&app, resume, settings] {
    for (const char* other :
         {"--resume", "--compile", "--replay", "--devices", "--shard"})  // whose steps take other memory
      if (app.count("--forecast") && app.count(other)) throw CLI::ExcludesError("--forecast", other);
    if (resume->count() == 0 && app.count("--forecast") == 0 && app.count("--text") == 0)
      throw CLI::RequiredError("--text");
    if (app.count("--steps") && app.count("--max-seconds")) throw CLI::ExcludesError("--steps", "--max-seconds");
    if (resume->count() == 0) return;
    if (app.count("--out")) throw CLI::ExcludesError("--resume", "--out");
    for (const CLI::Option* option : settings)
      if (option->count()) throw CLI::ExcludesError("--resume", option->get_name());
  });
}

/// Adds an option that names one of `values`, which are numbered from 0.
template <class Set>
CLI::Option* add_choice(CLI::App& app, const char* flag, const std::vector<std::string>& values, const Set& set,
                        const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag, [=](const std::string& name) { set(std::ranges::find(values, name) - values.begin()); }, help)
      ->check(one_of(values));
}

std::vector<std::string> execution_names() {
  std::vector<std::string> names;
  for (const replay::Execution x : replay::kExecutions) names.emplace_back(replay::name(x));
  return names;
}

/// Flags of what a BucketSet has. `about` begins the help.
template <class Options>
std::vector<CLI::Option*> add_buckets(CLI::App& app, Options& o, const std::string& about) {
  return {app.add_option("--sizes", o.sizes, about + "The batch sizes that are prepared, as in 1,8,64")
              ->check(whole(1, 1 << 20))
              ->delimiter(',')
              ->type_name("LIST"),
          app.add_flag_callback(
              "--no-padding", [&o] { o.padding = false; },
              about + "Batches of other sizes are not padded up, and run as the function is"),
          add_choice(
              app, "--policy", {"latency", "throughput"},
              [&o](int64_t i) { o.policy = i == 0 ? replay::Policy::latency : replay::Policy::throughput; },
              about + "Choose each size's execution by time: for single calls (latency) or many (throughput)")
              ->type_name("GOAL")};
}

/// What --resume takes from the file instead.
std::vector<const CLI::Option*> add_text_settings(CLI::App& app, GenerateOptions& o) {
  return {
      app.add_option("--prompt", o.prompts,
                     "Text to go on from (default: a line break); given several times, all are written side by side")
          ->type_name("TEXT")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
      app.add_option("--temperature", o.temperature,
                     "0 always takes the most likely byte; 1 samples from the model's probabilities")
          ->capture_default_str()
          ->check(between(0, 100))
          ->type_name("T"),
      app.add_option("--top-k", o.top_k, "Sample among the K likeliest; 0 for all")
          ->capture_default_str()
          ->check(whole(0))
          ->type_name("K"),
      app.add_option("--top-p", o.top_p, "Sample among the likeliest that together have probability P")
          ->capture_default_str()
          ->check(between(1e-6, 1))
          ->type_name("P"),
      app.add_option("--repetition-penalty", o.repetition_penalty,
                     "Make bytes of the text so far less likely: above 1; 1 changes nothing")
          ->capture_default_str()
          ->check(between(1e-3, 1000))
          ->type_name("R"),
      app.add_option("--stop", o.stop, "End before TEXT where it appears")->type_name("TEXT"),
      app.add_option("--batch", o.batch,
                     "Texts of each prompt, written side by side; several are printed one after the other")
          ->capture_default_str()
          ->check(whole(1, 4096))
          ->type_name("N")};
}

void add_generate(CLI::App& app, GenerateOptions& o) {
  app.add_option("--checkpoint", o.checkpoint, "Folder that `lorry train` wrote, or the checkpoint in it")
      ->required()
      ->type_name("DIR");
  app.add_option("--tokens", o.tokens, "Bytes to write")
      ->capture_default_str()
      ->check(whole(1, int64_t{1} << 40))
      ->type_name("N");
  const std::vector<const CLI::Option*> settings = add_text_settings(app, o);
  app.add_flag_callback(
      "--no-echo", [&o] { o.echo = false; }, "Do not print the prompt");
  app.add_flag("--fast", o.fast,
               "Let a text depend, where two bytes are nearly as likely, on what is written with it: faster");
  add_buckets(app, o.buckets, "");
  add_choice(
      app, "--execution", execution_names(),
      [&o](int64_t i) { o.buckets.execution = replay::kExecutions[static_cast<size_t>(i)]; },
      "How a step runs: " + listed(execution_names()) + " (compiled, as a graph); default graph")
      ->type_name("NAME");
  app.add_option("--graph-memory", o.buckets.memory_budget,
                 "Bytes that graphs may take; sizes that are used least have none then")
      ->check(whole(1))
      ->type_name("BYTES");
  app.add_option("--save", o.save, "Write the texts and their settings to FILE, for --resume")->type_name("FILE");
  app.add_option("--resume", o.resume, "Go on with the texts that --save wrote, with their settings and seed")
      ->type_name("FILE");
  app.callback([&app, settings] {
    if (app.count("--save") && app.get_option("--save")->as<std::string>() == "-")
      throw CLI::ValidationError("--save", "cannot be -: the texts are printed there");
    if (app.count("--policy") && app.count("--execution")) throw CLI::ExcludesError("--policy", "--execution");
    if (app.count("--resume") == 0) return;
    for (const CLI::Option* option : settings)
      if (option->count()) throw CLI::ExcludesError("--resume", option->get_name());
  });
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const bench::Suite& suite : bench_suites()) names.emplace_back(suite.name);
  return names;
}

std::vector<CLI::Option*> add_replay(CLI::App& app, bench::ReplayOptions& o) {
  const std::vector<std::string> executions = execution_names();
  std::vector<CLI::Option*> all = add_buckets(app, o, "replay, with a set of buckets: ");
  all.push_back(app.add_option_function<std::vector<std::string>>(
                       "--execution",
                       [&o, executions](const std::vector<std::string>& names) {
                         for (const std::string& name : names)
                           o.executions.push_back(replay::kExecutions[static_cast<size_t>(
                               std::ranges::find(executions, name) - executions.begin())]);
                       },
                       "replay, generate: only these: " + listed(executions))
                    ->check(one_of(executions))
                    ->delimiter(',')
                    ->type_name("LIST"));
  return all;
}

std::vector<CLI::Option*> add_parallel(CLI::App& app, bench::ParallelOptions& o) {
  CLI::Option* const simulate =
      app.add_option("--simulate", o.simulate, "parallel: predict the training step on up to N ranks")
          ->check(whole(2, 1 << 20))
          ->type_name("N");
  return {simulate,
          app.add_option("--per-machine", o.per_machine, "--simulate: ranks of a machine")
              ->capture_default_str()
              ->needs(simulate)
              ->check(whole(1, 1024))
              ->type_name("N"),
          app.add_option("--network", o.network_gb_per_s, "--simulate: GB/s of a rank between machines, each way")
              ->capture_default_str()
              ->needs(simulate)
              ->check(above_zero())
              ->type_name("GB/S"),
          app.add_option("--network-latency", o.network_us, "--simulate: microseconds of a message between machines")
              ->capture_default_str()
              ->needs(simulate)
              ->check(from_zero())
              ->type_name("US")};
}

void add_bench(CLI::App& app, BenchOptions& o) {
  const std::vector<std::string> names = suite_names();
  app.add_option("suite", o.suites, "What to measure: " + listed(names))->type_name("NAME")->check(one_of(names));
  app.add_option("--compare", o.compare, "Compare two reports of --json, the old one first, in place of measuring")
      ->expected(2)
      ->type_name("OLD.json NEW.json");
  app.add_option("--fail-above", o.fail_above,
                 "--compare: exit with 1 if a case is slower by more than PERCENT, and beyond the spread of both")
      ->check(from_zero())
      ->type_name("PERCENT");
  app.add_option("--filter", o.filter, "Only cases whose name contains TEXT; where none does, the names are listed")
      ->type_name("TEXT");
  app.add_option("--plot", o.plot, "Draw the medians into FILE, with gnuplot; - is standard output")
      ->type_name("FILE.svg");
  std::map<std::string, std::vector<CLI::Option*>> own;  // options of these suites only
  own["attention"] = own["operators"] = {
      app.add_flag("--rounds", o.rounds,
                   "operators, attention: a round of each case named on standard input, as JSON, for "
                   "bench/peers/operators_torch.py")};
  bench::OptimMemoryOptions& m = o.optim_memory;
  own["optim"] = add_optimizer_memory(app, m.states, m.masters, m.placement, "optim, AdamW: ");
  own["optim"].push_back(
      app.add_option("--memory-budget", m.memory_budget, "optim: bytes that loop and foreach may take while they step")
          ->check(whole(1))
          ->type_name("BYTES"));
  own["optim"].push_back(app.add_flag("--report", m.report, "optim: a table of executions, states and placements"));
  own["optim"].push_back(app.add_option("--model", m.model, "optim: the model of --report")->type_name("NAME"));
  own["replay"] = add_replay(app, o.replay), own["parallel"] = add_parallel(app, o.parallel);
  own["generate"] = {app.get_option("--execution")};
  app.callback([&app, &o, own] {
    if (o.suites.empty() && o.compare.empty()) throw CLI::RequiredError("suite");
    for (const char* measured : {"suite", "--plot", "--report"})
      if (app.count("--compare") && app.count(measured)) throw CLI::ExcludesError("--compare", measured);
    if (app.count("--fail-above") && !app.count("--compare")) throw CLI::RequiresError("--fail-above", "--compare");
    if (app.count("--policy") && app.count("--execution")) throw CLI::ExcludesError("--policy", "--execution");
    if (o.plot == "-" && app.get_option("--json")->as<std::string>() == "-")
      throw CLI::ValidationError("--plot", "and --json cannot both be -; expected a file for one of them");
    for (const CLI::Option* option : app.get_options()) {
      std::vector<std::string> takers;
      for (const auto& [suite, options] : own)
        if (std::ranges::count(options, option) > 0) takers.push_back(suite);
      const bool taken = takers.empty() || (o.suites.size() == 1 && std::ranges::count(takers, o.suites[0]) > 0);
      if (option->count() > 0 && !taken)
        throw CLI::ValidationError(option->get_name(),
                                   fmt::format("is for `bench {}` alone", fmt::join(takers, "` or `bench ")));
    }
  });
}

/// "0 What starting costs, 1 Create on the device, ...": every lesson.
std::string lesson_list() {
  std::vector<std::string> names;
  for (const bench::lessons::Entry& entry : bench::lessons::table())
    names.push_back(fmt::format("{} {}", entry.number, entry.title));
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_lessons(CLI::App& app, LessonsOptions& o) {
  const auto known = validator([](const std::string& word) {
    for (const bench::lessons::Entry& entry : bench::lessons::table())
      if (word == fmt::format("{}", entry.number)) return std::string();
    return fmt::format("there is no lesson '{}'; expected one of {}", word, lesson_list());
  });
  app.add_option("lesson", o.numbers, "Lessons by their numbers (default: all): " + lesson_list())
      ->type_name("N")
      ->check(known);
  app.add_option("--report", o.report, "Write a page of HTML with plots and code to FILE; - is standard output")
      ->type_name("FILE.html");
  app.add_option("--seconds", o.seconds, "How long each way is sampled; the first calls come on top")
      ->capture_default_str()
      ->check(between(0.001, 60))
      ->type_name("S");
  app.add_option("--child", o.child, "")->group("");  // how a lesson starts a process of its own
  app.callback([&app, &o] {
    if (o.report == "-" && app.get_option("--json")->as<std::string>() == "-")
      throw CLI::ValidationError("--report", "and --json cannot both be -; expected a file for one of them");
  });
}

/// Help text with lines that fit the terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    const int columns = std::min(terminal_columns(stdout).value_or(kHelpColumns), kHelpColumns);
    return folded(CLI::Formatter::make_option_desc(option), columns - static_cast<int>(get_column_width()), 0);
  }

 private:
  static constexpr int kHelpColumns = 100;
};

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

/// Explains a word that no option or command accepted.
std::string explain_unknown(const CLI::App& app, std::string word) {
  if (!word.starts_with('-')) {
    if (app.get_parent() != nullptr) return fmt::format("'{}' is not expected here", word);
    return fmt::format("unknown command: {}", check_one_of(word, commands_of(app)));
  }
  word = word.substr(0, word.find('='));
  if (app.get_parent() == nullptr)
    for (const CLI::App* command : app.get_subcommands({}))
      if (const auto flags = flags_of(*command); std::ranges::find(flags, word) != flags.end())
        return fmt::format("{} goes after the command, as in: lorry {} {}", word, command->get_name(), word);
  const std::optional<std::string> meant = nearest(word, flags_of(app));
  return fmt::format("unknown flag {}{}", word, meant ? fmt::format("; did you mean {}?", *meant) : "");
}

/// Explains wrong usage on standard error.
void explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& in = chosen.empty() || app.remaining_size() > 0 ? app : *chosen.front();
  std::vector<std::string> unknown = in.remaining();
  const bool nameless = chosen.empty() && !unknown.empty();
  // Show flags first: a misspelt flag leaves its value in the list too, and a misspelt command its flags.
  std::stable_partition(unknown.begin(), unknown.end(),
                        [&](const std::string& word) { return word.starts_with('-') != nameless; });
  const bool has_unknown_flag = !unknown.empty() && unknown.front().starts_with('-');  // its value may be the error
  std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || nameless || has_unknown_flag)
    what = explain_unknown(in, unknown.front());
  else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && in.get_name() == "bench")
    what = fmt::format("a suite is missing; expected {}", listed(suite_names()));
  else if (chosen.empty())
    what = fmt::format("a command is missing; expected {}", listed(commands_of(app)));
  const std::string name = chosen.empty() ? "" : " " + chosen.front()->get_name();
  fmt::print(stderr, "lorry{}: {}\nRun lorry{} --help for more information.\n", name, what, name);
}

}  // namespace

std::variant<Arguments, int> parse(int argc, const char* const* argv, const CommonOptions& common) {
  CLI::App app("Lorry: a C++20 tensor runtime that trains and runs a small GPT.", "lorry");
  app.set_version_flag("--version", std::string("lorry ") + bench::kVersion);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());

  Arguments arguments{.common = common, .command = {}};
  InfoOptions info;
  TrainOptions train;
  GenerateOptions generate;
  BenchOptions bench;
  ProfileOptions profile;
  LessonsOptions lessons;
  const auto command = [&](const char* name, const char* help, auto add, auto& values) {
    CLI::App* sub = app.add_subcommand(name, help);
    add(*sub, values);
    add_common(*sub, arguments.common);
    return sub;
  };
  const auto* info_command = command(
      "info", "Devices, libraries found and missing, and the machine's ceilings; or a training run", add_info, info);
  const auto* train_command = command("train", "Train a byte-level GPT on text files", add_train, train);
  const auto* generate_command = command("generate", "Write text with a trained model", add_generate, generate);
  const auto* bench_command = command("bench", "Measure Lorry on this machine", add_bench, bench);
  command("profile", "Run another command and say where its time goes: lorry profile -- train ...", add_profile,
          profile);
  const auto* lessons_command =
      command("lessons", "What makes programs slow, shown by times of this machine", add_lessons, lessons);

  const int own = words_before_command(argc, argv);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      app.exit(error, text, text);
      write(stdout, text.str());
      return 0;
    }
    explain(app, error);
    return kWrongUsage;
  }
  train.settings.seed = arguments.common.seed;
  if (*info_command)
    arguments.command = info;
  else if (*train_command)
    arguments.command = train;
  else if (*generate_command)
    arguments.command = generate;
  else if (*bench_command)
    arguments.command = bench;
  else if (*lessons_command)
    arguments.command = lessons;
  else
    return parse_profile(std::move(arguments), profile, own, argc, argv);
  return arguments;
}

}  // namespace lorry::cli
