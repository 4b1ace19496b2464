#include "lorry/cli/options.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace lorry::cli {
namespace {

std::variant<Arguments, int> parse_line(std::vector<const char*> words) {
  words.insert(words.begin(), "lorry");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  auto result = parse(static_cast<int>(words.size()), words.data());
  testing::internal::GetCapturedStderr();
  testing::internal::GetCapturedStdout();
  return result;
}

int status_of(const std::vector<const char*>& words) {
  const auto result = parse_line(words);
  return std::holds_alternative<int>(result) ? std::get<int>(result) : -1;
}

TEST(Options, every_command_takes_the_common_flags) {
  const std::vector<std::vector<const char*>> commands = {
      {"info"}, {"train", "--text", "a"}, {"generate", "--checkpoint", "d"}, {"bench", "overhead"}, {"lessons"}};
  for (auto words : commands) {
    for (const char* word : {"--json", "f.json", "--device", "cpu", "--threads", "3", "--seed", "7", "--quiet"})
      words.push_back(word);
    const auto result = parse_line(words);
    ASSERT_TRUE(std::holds_alternative<Arguments>(result)) << words[0];
    const CommonOptions& common = std::get<Arguments>(result).common;
    EXPECT_EQ(common.json, "f.json");
    EXPECT_EQ(common.threads, 3);
    EXPECT_EQ(common.seed, 7u);
    EXPECT_TRUE(common.quiet);
  }
}

/// The command that `lorry profile` runs, with the common flags that it runs with.
Arguments profiled(const std::vector<const char*>& words) {
  return *std::get<ProfileOptions>(std::get<Arguments>(parse_line(words)).command).command;
}

TEST(Options, a_profiled_command_takes_over_the_flags_that_it_has_not_itself) {
  const std::vector<const char*> own = {"profile", "--device", "cpu",    "--threads", "3",     "--seed", "7",
                                        "--quiet", "--json",   "p.json", "--",        "train", "--text", "a"};
  const Arguments taken = profiled(own);
  EXPECT_EQ(taken.common.device, kCPU);
  EXPECT_EQ(taken.common.threads, 3);
  EXPECT_EQ(taken.common.seed, 7u);
  EXPECT_EQ(std::get<TrainOptions>(taken.command).settings.seed, 7u);
  EXPECT_TRUE(taken.common.quiet);
  EXPECT_EQ(taken.common.json, "") << "the file is the profile's";
  std::vector<const char*> both = own;
  for (const char* word : {"--threads", "5", "--seed", "0", "--json", "t.json"}) both.push_back(word);
  const Arguments given = profiled(both);
  EXPECT_EQ(given.common.device, kCPU);
  EXPECT_EQ(given.common.threads, 5);
  EXPECT_EQ(given.common.seed, 0u);
  EXPECT_EQ(std::get<TrainOptions>(given.command).settings.seed, 0u);
  EXPECT_EQ(given.common.json, "t.json");
  const Arguments plain = profiled({"profile", "--", "info", "--quiet"});
  EXPECT_FALSE(plain.common.device || plain.common.threads);
  EXPECT_TRUE(plain.common.quiet);
}

TEST(Options, a_profile_writes_no_file_where_its_command_prints) {
  for (const char* file : {"--trace", "--report", "--memory-plot", "--json"}) {
    EXPECT_EQ(status_of({"profile", file, "-", "--", "info"}), 2) << file;
    EXPECT_EQ(status_of({"profile", file, "f", "--", "info"}), -1) << file;
  }
  EXPECT_EQ(status_of({"profile", "--", "info", "--json", "-"}), -1) << "that file is the command's own";
}

TEST(Options, a_profile_records_as_many_calls_as_a_session_can) {
  EXPECT_EQ(status_of({"profile", "--max-spans", "268435456", "--", "info"}), -1);
  EXPECT_EQ(status_of({"profile", "--max-spans", "268435457", "--", "info"}), 2);
}

TEST(Options, tables_of_a_profile_and_their_order_are_chosen_by_name) {
  const auto parsed = parse_line({"profile", "--by", "shape,operator", "--sort-by", "calls", "--", "info"});
  const auto& options = std::get<ProfileOptions>(std::get<Arguments>(parsed).command);
  EXPECT_EQ(options.by, (std::vector<profile::GroupBy>{profile::GroupBy::shape, profile::GroupBy::op}));
  EXPECT_EQ(options.sort_by, profile::SortBy::calls);
  for (const char* word : {"op", "Shape", "0", ""})
    EXPECT_EQ(status_of({"profile", "--by", word, "--", "info"}), 2) << word;
  EXPECT_EQ(status_of({"profile", "--sort-by", "calls,name", "--", "info"}), 2);
}

TEST(Options, lessons_are_chosen_by_their_numbers) {
  const auto parsed = parse_line({"lessons", "7", "0", "--report", "page.html", "--seconds", "0.5"});
  const auto& lessons = std::get<LessonsOptions>(std::get<Arguments>(parsed).command);
  EXPECT_EQ(lessons.numbers, (std::vector<int64_t>{7, 0}));
  EXPECT_EQ(lessons.report, "page.html");
  EXPECT_EQ(lessons.seconds, 0.5);
  EXPECT_EQ(status_of({"lessons", "15"}), 2);
  EXPECT_EQ(status_of({"lessons", "--seconds", "0"}), 2);
}

TEST(Options, the_values_of_train_arrive) {
  const auto result = parse_line({"train",    "--text", "a",       "b",     "--preset",    "tiny", "--steps", "12",
                                  "--lr",     "0.5",    "--dtype", "bf16",  "--execution", "loop", "--clip",  "0",
                                  "--warmup", "0",      "--out",   "there", "--seed",      "9"});
  const auto& train = std::get<TrainOptions>(std::get<Arguments>(result).command);
  EXPECT_EQ(train.texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(train.settings.preset, "tiny");
  EXPECT_EQ(train.settings.steps, 12);
  EXPECT_EQ(train.settings.lr, 0.5);
  EXPECT_EQ(train.settings.dtype, kBF16);
  EXPECT_EQ(train.settings.execution, "loop");
  EXPECT_EQ(train.settings.clip, 0);
  EXPECT_EQ(train.settings.warmup, 0);
  EXPECT_EQ(train.settings.seed, 9u);
  EXPECT_EQ(train.out, "there");
}

TEST(Options, what_an_optimizer_keeps_arrives) {
  const auto of = [](const std::vector<const char*>& words) {
    return std::get<TrainOptions>(std::get<Arguments>(parse_line(words)).command).settings;
  };
  const TrainSettings plain = of({"train", "--text", "a"}),
                      chosen = of({"train", "--text", "a", "--states", "bf16,q8", "--masters", "split", "--placement",
                                   "pinned"});
  EXPECT_EQ(plain.states, optim::StateTypes());
  EXPECT_FALSE(plain.masters);
  EXPECT_EQ(chosen.states, optim::StateTypes(optim::StateType::bf16, optim::StateType::q8));
  EXPECT_EQ(chosen.masters, optim::Masters::split);
  EXPECT_EQ(chosen.placement, optim::Placement::pinned);
  for (const char* states : {"", "q4", "q8,", "f32,f32,f32,f32"})
    EXPECT_EQ(status_of({"train", "--text", "a", "--states", states}), 2) << states;
  EXPECT_EQ(status_of({"train", "--text", "a", "--masters", "bf16"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--placement", "disk"}), 2);
}

TEST(Options, what_bench_optim_keeps_arrives_and_is_for_it_alone) {
  const auto result = parse_line({"bench", "optim", "--states", "q8", "--masters", "stochastic", "--placement",
                                  "managed", "--memory-budget", "1000000", "--report", "--model", "gpt2"});
  const bench::OptimMemoryOptions& memory = std::get<BenchOptions>(std::get<Arguments>(result).command).optim_memory;
  EXPECT_EQ(memory.states, optim::StateTypes(optim::StateType::q8));
  EXPECT_EQ(memory.masters, optim::Masters::stochastic);
  EXPECT_EQ(memory.placement, optim::Placement::managed);
  EXPECT_EQ(memory.memory_budget, 1'000'000);
  EXPECT_TRUE(memory.report);
  EXPECT_EQ(memory.model, "gpt2");
  EXPECT_FALSE(bench::OptimMemoryOptions().given());
  EXPECT_EQ(status_of({"bench", "overhead", "--states", "q8"}), 2);
  EXPECT_EQ(status_of({"bench", "optim", "--memory-budget", "-5"}), 2);
}

TEST(Options, what_bench_replay_runs_arrives_and_is_for_it_alone) {
  const auto of = [](const std::vector<const char*>& words) {
    return std::get<BenchOptions>(std::get<Arguments>(parse_line(words)).command).replay;
  };
  const bench::ReplayOptions plain = of({"bench", "replay"}),
                             two = of({"bench", "replay", "--execution", "eager,both", "--sizes", "1,8,64"}),
                             best = of({"bench", "replay", "--no-padding", "--policy", "throughput"});
  EXPECT_FALSE(plain.given());
  EXPECT_EQ(two.executions, (std::vector{replay::Execution::eager, replay::Execution::both}));
  EXPECT_EQ(two.sizes, (std::vector<int64_t>{1, 8, 64}));
  EXPECT_TRUE(two.padding && two.buckets());
  EXPECT_FALSE(best.padding);
  EXPECT_EQ(best.policy, replay::Policy::throughput);
  EXPECT_FALSE(of({"bench", "replay", "--execution", "graph"}).buckets());
  EXPECT_EQ(status_of({"bench", "replay", "--execution", "fast"}), 2);
  EXPECT_EQ(status_of({"bench", "replay", "--sizes", "0"}), 2);
  EXPECT_EQ(status_of({"bench", "replay", "--policy", "latency", "--execution", "eager"}), 2);
  EXPECT_EQ(status_of({"bench", "optim", "--policy", "latency"}), 2);
}

TEST(Options, what_two_suites_of_bench_take_is_for_either_alone) {
  const auto taken = [](const std::vector<const char*>& words) {
    return std::holds_alternative<Arguments>(parse_line(words));
  };
  EXPECT_TRUE(taken({"bench", "operators", "--rounds"}));
  EXPECT_TRUE(taken({"bench", "attention", "--rounds"}));
  EXPECT_TRUE(taken({"bench", "generate", "--execution", "eager"}));
  EXPECT_EQ(status_of({"bench", "memory", "--rounds"}), 2);
  EXPECT_EQ(status_of({"bench", "operators", "attention", "--rounds"}), 2);
  EXPECT_EQ(status_of({"bench", "train", "--execution", "eager"}), 2);
}

TEST(Options, sixteen_bits_and_accumulation_arrive) {
  const auto result = parse_line({"train", "--text", "a", "--dtype", "f16", "--accumulate", "8"});
  const auto& train = std::get<TrainOptions>(std::get<Arguments>(result).command);
  EXPECT_EQ(train.settings.dtype, kF16);
  EXPECT_EQ(train.settings.accumulate, 8);
}

TEST(Options, ways_to_run_a_step_arrive) {
  const auto result = parse_line({"train", "--text", "a", "--replay", "--compile"});
  const auto& train = std::get<TrainOptions>(std::get<Arguments>(result).command);
  EXPECT_TRUE(train.replay);
  EXPECT_TRUE(train.compile);
}

/// What a command line makes the parser say, on both streams.
std::string said_to(std::vector<const char*> words) {
  words.insert(words.begin(), "lorry");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  parse(static_cast<int>(words.size()), words.data());
  const std::string out = testing::internal::GetCapturedStdout();
  return out + testing::internal::GetCapturedStderr();
}

std::string first_line(const std::vector<const char*>& words) {
  const std::string said = said_to(words);
  return said.substr(0, said.find('\n'));
}

TEST(Options, a_misspelt_word_gets_a_suggestion) {
  EXPECT_EQ(first_line({"trian", "--text", "a"}),
            "lorry: unknown command: got 'trian'; expected info, train, generate, bench, profile or lessons; "
            "did you mean train?");
  EXPECT_EQ(first_line({"train", "--text", "a", "--stpes", "3"}),
            "lorry train: unknown flag --stpes; did you mean --steps?");
  EXPECT_EQ(first_line({"train", "--text", "a", "--stpes=3"}),
            "lorry train: unknown flag --stpes; did you mean --steps?");
  EXPECT_EQ(first_line({"--quiet", "info"}), "lorry info: --quiet goes after the command, as in: lorry info --quiet");
  EXPECT_EQ(first_line({"bench", "operators", "--fliter", "add"}),
            "lorry bench: unknown flag --fliter; did you mean --filter?");  // not: the suite is unknown
  EXPECT_TRUE(first_line({"bench", "optin"}).ends_with("did you mean optim?"));
  EXPECT_TRUE(first_line({"train", "--text", "a", "--optimizer", "adamv"}).ends_with("did you mean adamw?"));
  EXPECT_TRUE(first_line({"train", "--text", "a", "--execution", "fussed"}).ends_with("did you mean fused?"));
}

TEST(Options, a_flag_is_named_once) {
  EXPECT_EQ(first_line({"info", "--device", "tpu"}),
            "lorry info: --device: unknown name; got 'tpu'; expected cpu, cuda, cuda:N or meta");
  EXPECT_EQ(first_line({"info", "--device", "meta"}),
            "lorry info: --device: meta computes nothing; got 'meta'; expected cpu, cuda or cuda:N");
  EXPECT_TRUE(first_line({"info", "--device", "cuda:99"}).starts_with("lorry info: --device: "));
  const std::vector<std::vector<const char*>> lines = {
      {"--device", "cuda:99"}, {"--states", "q4"}, {"--masters", "bf16"}, {"--placement", "disk"}};
  for (std::vector<const char*> flags : lines) {
    const std::string flag = flags[0];
    flags.insert(flags.begin(), {"train", "--text", "a"});
    const std::string said = first_line(flags);
    EXPECT_TRUE(said.starts_with("lorry train: " + flag + ": ")) << said;
    EXPECT_EQ(said.find(flag.substr(2) + ": ", said.find(flag) + flag.size() + 2), std::string::npos) << said;
  }
}

TEST(Options, a_number_out_of_range_is_told_in_one_short_line) {
  for (const char* flag : {"--lr", "--clip", "--warmup", "--weight-decay", "--max-seconds", "--eval-every"})
    for (const char* value : {"-1", "nan", "many"}) {
      const std::string said = said_to({"train", "--text", "a", flag, value});
      EXPECT_TRUE(said.starts_with(std::string("lorry train: ") + flag + ": got '" + value + "'; expected a ")) << said;
      EXPECT_LT(said.size(), 200u) << said;
    }
}

TEST(Options, help_fits_100_columns_and_shows_nothing_of_the_parser) {
  for (const char* command : {"info", "train", "generate", "bench"}) {
    const std::string help = said_to({command, "--help"});
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    for (const char* odd : {"{", "POSITIVE", "NONNEGATIVE", "INT", "FLOAT", "1099511627776"})
      EXPECT_EQ(help.find(odd), std::string::npos) << odd << " in " << help;
  }
}

TEST(Options, help_of_train_tells_what_each_preset_is) {
  const std::string help = said_to({"train", "--help"});
  for (const char* words : {"preset layers width parameters batch context rate steps",
                            "nano 4 128 826 k 8 128 0.003 3000", "gpt2 12 768"}) {
    std::string pattern = std::regex_replace(words, std::regex(" "), " +");
    EXPECT_TRUE(std::regex_search(help, std::regex("\n *" + pattern))) << pattern << " in " << help;
  }
}

TEST(Options, wrong_usage_is_status_2) {
  EXPECT_EQ(status_of({}), 2);
  EXPECT_EQ(status_of({"frobnicate"}), 2);
  EXPECT_EQ(status_of({"info", "--frobnicate"}), 2);
  EXPECT_EQ(status_of({"info", "--threads", "0"}), 2);
  EXPECT_EQ(status_of({"info", "--device", "tpu"}), 2);
  EXPECT_EQ(status_of({"info", "--device", "cuda"}), 2);
  EXPECT_EQ(status_of({"train"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--steps", "0"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--steps", "many"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--lr", "-1"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--dtype", "i32"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--accumulate", "0"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--execution", "fast"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--optimizer", "adamv"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--steps", "3", "--max-seconds", "3"}), 2);
  EXPECT_EQ(status_of({"train", "--text", "a", "--max-seconds", "3", "--warmup", "0"}), -1);
  EXPECT_EQ(status_of({"generate"}), 2);
  EXPECT_EQ(status_of({"generate", "--checkpoint", "d", "--top-p", "0"}), 2);
  EXPECT_EQ(status_of({"bench"}), 2);
  EXPECT_EQ(status_of({"bench", "nothing"}), 2);
}

TEST(Options, what_decides_a_resumed_run_cannot_be_given_again) {
  EXPECT_EQ(status_of({"train", "--resume", "d"}), -1);
  EXPECT_EQ(status_of({"train", "--resume", "d", "--text", "a"}), -1);
  EXPECT_EQ(status_of({"train", "--resume", "d", "--lr", "1"}), 2);
  EXPECT_EQ(status_of({"train", "--resume", "d", "--steps", "5"}), -1) << "a run may be extended";
  EXPECT_EQ(status_of({"train", "--resume", "d", "--max-seconds", "5"}), 2);
  EXPECT_EQ(status_of({"train", "--resume", "d", "--out", "e"}), 2);
  EXPECT_EQ(status_of({"train", "--resume", "d", "--accumulate", "2"}), 2);
}

TEST(Options, help_and_version_are_status_0) {
  EXPECT_EQ(status_of({"--help"}), 0);
  EXPECT_EQ(status_of({"--version"}), 0);
  EXPECT_EQ(status_of({"train", "--help"}), 0);
}

}  // namespace
}  // namespace lorry::cli
