#pragma once

// The contents of a command line as plain values. Only the parser (options.cpp, *_options.cpp) uses CLI11.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lorry/bench/optim_memory.h"
#include "lorry/bench/parallel.h"
#include "lorry/bench/replay.h"
#include "lorry/layout/device.h"
#include "lorry/layout/dtype.h"
#include "lorry/optim/memory.h"
#include "lorry/profile/table.h"

namespace lorry::cli {

/// Flags that every command takes.
struct CommonOptions {
  std::string json;              ///< file for the figures as JSON; empty: none
  std::optional<Device> device;  ///< unset: a GPU if there is one
  std::optional<int> threads;
  uint64_t seed = 0;
  bool quiet = false;
};

struct InfoOptions {
  bool measure = false, remeasure = false;
  std::string run;  ///< the folder of a training run; empty: describe the machine
};

/// The settings that determine the numbers of a training run. They are saved in its checkpoint, so that a resumed run
/// computes the same.
struct TrainSettings {
  std::string preset = "nano";
  std::optional<int64_t> steps = {};                       ///< unset: planned by max_seconds, or the preset's default
  int64_t batch = 0, context = 0;                          ///< 0: the preset's
  std::optional<bool> rotary = {}, scale_embeddings = {};  ///< unset: the preset's
  int64_t accumulate = 1;                                  ///< batches per step
  int64_t vocab = 256;  ///< one token per byte; with a larger value the others are unused, as in GPT-2's own size
  double lr = 0;        ///< 0: the preset's
  std::optional<int64_t> warmup = {};
  std::optional<double> weight_decay = {};  ///< unset: chosen by the optimizer
  double clip = 1.0;                        ///< 0: no clipping
  DType dtype = kF32;
  std::string optimizer = "adamw";
  std::string execution = "automatic";
  optim::StateTypes states = {};               ///< how the optimizer stores its states
  std::optional<optim::Masters> masters = {};  ///< unset: f32 for parameters of 16 bits
  optim::Placement placement = {};             ///< where states are stored
  int64_t eval_every = 0;                      ///< 0: ten times per run; stays 0 in a run limited by time
  uint64_t seed = 0;
};

struct TrainOptions {
  TrainSettings settings;
  std::vector<std::string> texts;
  std::optional<double> max_seconds;  ///< time limit of the run, if its steps are not given
  std::string out = "run", resume;
  bool compile = false, epilogues = false, replay = false;
  int64_t devices = 1;           ///< processes to start, each with a device
  bool shard = false;            ///< each of them steps a part of the parameters
  int64_t restarts = 0;          ///< how often they are started again after a failure
  bool forecast = false;         ///< train nothing; print the memory of a step
  int64_t checkpoint_every = 0;  ///< 0: with each validation; always at the end and when interrupted
};

struct GenerateOptions {
  std::string checkpoint, stop, save, resume;
  std::vector<std::string> prompts{"\n"};
  int64_t tokens = 256, batch = 1, top_k = 0;
  double temperature = 1.0, top_p = 1.0, repetition_penalty = 1.0;
  bool echo = true;
  bool fast = false;  ///< without batch invariance
  replay::BucketOptions buckets{.capture = replay::Capture::at_first_use};
};

struct BenchOptions {
  std::vector<std::string> suites;
  std::string filter, plot;
  std::vector<std::string> compare;        ///< two reports to compare, the old one first; empty: measure suites
  std::optional<double> fail_above;        ///< with `compare`: percent
  bool rounds = false;                     ///< `operators` or `attention`, by names on standard input
  bench::OptimMemoryOptions optim_memory;  ///< if any is given, AdamW's steps with these options are measured instead
  bench::ParallelOptions parallel;         ///< of the suite `parallel`
  bench::ReplayOptions replay;             ///< of the suite `replay`
};

struct LessonsOptions {
  std::vector<int64_t> numbers;  ///< empty: all
  std::string report;            ///< file for the page; empty: none
  double seconds = 0.15;         ///< how long each way is sampled
  std::string child;             ///< run this experiment as a child process of a lesson
};

struct Arguments;

struct ProfileOptions {
  std::string trace, report, memory_plot;  ///< files; empty: none
  std::vector<profile::GroupBy> by{profile::GroupBy::op};
  profile::SortBy sort_by = profile::SortBy::time;
  bool apply = false;                        ///< then try the cures that Lorry can apply
  bool apply_all = false;                    ///< the same, also those of which nothing was found
  int64_t rows = 20;                         ///< of each table
  int64_t max_spans = int64_t{16} << 20;     ///< of a thread
  std::shared_ptr<const Arguments> command;  ///< what is profiled
};

struct Arguments {
  CommonOptions common;
  std::variant<InfoOptions, TrainOptions, GenerateOptions, BenchOptions, LessonsOptions, ProfileOptions> command;
};

/// Exit status after wrong usage.
inline constexpr int kWrongUsage = 2;

/// Parses a command line. Returns an exit status if there is nothing to run: 0 after --help and --version; 2 after
/// wrong usage, which has been explained on standard error. common: the values of common flags that are not given.
std::variant<Arguments, int> parse(int argc, const char* const* argv, const CommonOptions& common = {});

}  // namespace lorry::cli
