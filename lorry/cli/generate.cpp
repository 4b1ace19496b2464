#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/base/units.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/cli/progress.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_folder.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/saved_texts.h"
#include "lorry/cli/utf8.h"
#include "lorry/generate/engine.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// One generated text.
struct Line {
  std::string printed;  ///< the output so far, without the prompt
  Utf8Stream characters;
  bool stopped = false;

  /// Adds a byte and returns what may be printed now. A possible beginning of the stop text is held back until it is
  /// known not to be one.
  std::string add(unsigned char byte, const std::string& stop) {
    held_ += characters.push(byte);
    if (stop.empty()) return release(held_.size());
    if (const size_t at = held_.find(stop); at != std::string::npos) {
      stopped = true;
      return release(at);
    }
    size_t keep = std::min(held_.size(), stop.size() - 1);
    while (keep > 0 && !held_.ends_with(stop.substr(0, keep))) --keep;
    return release(held_.size() - keep);
  }
  std::string finish() {
    if (stopped) return {};
    held_ += characters.finish();
    return release(held_.size());
  }

 private:
  std::string release(size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    printed += out;
    return out;
  }
  std::string held_;
};

std::unique_ptr<nn::GPT> load_model(const std::filesystem::path& checkpoint) {
  const io::Checkpoint loaded = io::load_checkpoint(checkpoint);
  check_against_tensors(loaded);
  auto model = std::make_unique<nn::GPT>(model_config(loaded.state.config));
  model->to(parse_dtype(io::setting<std::string>(loaded.state.config, "dtype")));
  model->eval();
  io::restore(model->state_dict(), loaded.model,
              fmt::format("generate: '{}'", (checkpoint / "model.safetensors").string()));
  return model;
}

/// The texts of a command line: each prompt `batch` times, with a stream for each time. A text does not depend on how
/// many are generated with it.
Texts texts_of(const GenerateOptions& options, uint64_t seed) {
  Texts texts{.stop = options.stop, .requests = {}, .ended = {}};
  for (const std::string& prompt : options.prompts) {
    require<ValueError>(!prompt.empty(), "generate: the prompt is empty; expected at least one byte to go on from");
    for (int64_t stream = 0; stream < options.batch; ++stream) {
      generate::Request r{.tokens = byte_tokens(prompt),
                          .sampling = {.temperature = options.temperature,
                                       .top_k = options.top_k,
                                       .top_p = options.top_p,
                                       .repetition_penalty = options.repetition_penalty,
                                       .seed = seed,
                                       .stream = static_cast<uint64_t>(stream)}};
      if (!options.stop.empty()) r.stops = {byte_tokens(options.stop)};
      texts.requests.push_back(std::move(r));
      texts.ended.push_back(false);
    }
  }
  return texts;
}

generate::EngineOptions engine_options(const Texts& texts, const GenerateOptions& options) {
  const auto& requests = texts.requests;
  return {.sequences = std::min<int64_t>(static_cast<int64_t>(requests.size()), 160),
          .stops = texts.stop.empty() ? 0 : 1,
          .stop_length = static_cast<int64_t>(texts.stop.size()),
          .penalties = std::ranges::any_of(requests, [](const auto& r) { return r.sampling.repetition_penalty != 1; }),
          .batch_invariant = !options.fast,
          .buckets = options.buckets};
}

/// Writes the texts, and prints a single one as it comes.
class Writer {
 public:
  Writer(Texts& texts, const GenerateOptions& options, const Table& table, bool quiet)
      : texts_(texts),
        options_(options),
        table_(table),
        streams_(texts.requests.size() == 1),
        lines_(texts.requests.size()),
        progress_("generate", 0, static_cast<int64_t>(lines_.size()) * options.tokens,
                  quiet || streams_ || !terminal_columns(stderr)) {
    for (size_t i = 0; i < lines_.size(); ++i) begin(i);
  }

  void run(generate::Engine& engine) {
    std::vector<size_t> texts;  // by the number of their request
    const auto start = Clock::now();
    for (size_t i = 0; i < lines_.size(); ++i) {
      generate::Request& r = texts_.requests[i];
      r.limit = options_.tokens;
      if (texts_.ended[i]) continue;
      engine.submit(r);
      texts.push_back(i);
    }
    while (!engine.idle())
      for (const generate::Update& update : engine.step()) {
        take(texts[static_cast<size_t>(update.request)], update);
        if (first_s == 0 && written > 0) first_s = seconds_since(start);
      }
    seconds = seconds_since(start);
  }

  nlohmann::ordered_json finish() {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (size_t i = 0; i < lines_.size(); ++i) {
      const std::string rest = lines_[i].finish();
      if (streams_)
        show(rest + "\n");
      else
        table_.print("{}--- {} ---\n{}{}\n", i ? "\n" : "", i + 1, echoed_[i], lines_[i].printed);
      all.push_back(lines_[i].printed);
    }
    return all;
  }

  int64_t written = 0;
  double seconds = 0, first_s = 0;

 private:
  /// Echoes the prompt. What was drawn before is echoed too, but for what the stop or a character may still need.
  void begin(size_t i) {
    const generate::Request& r = texts_.requests[i];
    const size_t prompt = r.tokens.size() - static_cast<size_t>(r.drawn);
    std::string echo;
    for (size_t k = 0; k < prompt; ++k) echo.push_back(static_cast<char>(r.tokens[k]));
    for (size_t k = prompt; k < r.tokens.size(); ++k)
      echo += lines_[i].add(static_cast<unsigned char>(r.tokens[k]), texts_.stop);
    lines_[i].printed.clear();
    echoed_.push_back(options_.echo ? echo : "");
    if (streams_) show(echoed_[i]);
  }

  void take(size_t i, const generate::Update& update) {
    for (const int64_t token : update.tokens) {
      const std::string visible = lines_[i].add(static_cast<unsigned char>(token), texts_.stop);
      if (streams_) show(visible);
    }
    generate::Request& r = texts_.requests[i];
    r.tokens.insert(r.tokens.end(), update.tokens.begin(), update.tokens.end());
    r.drawn += static_cast<int64_t>(update.tokens.size());
    if (update.end == generate::End::stop) texts_.ended[i] = true;
    written += static_cast<int64_t>(update.tokens.size());
    progress_.update(written, "");
  }

  /// Prints a piece of text at once.
  void show(const std::string& text) {
    write(table_.stream(), text);
    if (table_.stream() == stdout) flush_standard_output();
  }

  Texts& texts_;
  const GenerateOptions& options_;
  const Table& table_;
  const bool streams_;
  std::vector<Line> lines_;
  std::vector<std::string> echoed_;
  Progress progress_;
};

}  // namespace

int run_generate(const GenerateOptions& options, const CommonOptions& common) {
  require_writable(common.json);
  require_writable(options.save);
  Texts texts = options.resume.empty() ? texts_of(options, common.seed) : load_texts(options.resume);
  const std::unique_ptr<nn::GPT> model = load_model(find_checkpoint(options.checkpoint, "generate"));
  generate::Engine engine(*model, engine_options(texts, options));
  const Table table{common.json};
  nlohmann::ordered_json printed;
  double first_s, seconds;
  int64_t written;
  {
    Writer writer(texts, options, table, common.quiet);
    try {
      writer.run(engine);
      printed = writer.finish();
    } catch (...) {
      save_texts(options.save, texts);  // what there is
      throw;
    }
    first_s = writer.first_s, seconds = writer.seconds, written = writer.written;
  }
  save_texts(options.save, texts);

  const auto lines = static_cast<double>(texts.requests.size());
  const double speed = static_cast<double>(written) / seconds, after_first = static_cast<double>(written) - lines;
  const double latency_ms = after_first > 0 ? 1e3 * (seconds - first_s) * lines / after_first : 0;
  if (!common.quiet)
    fmt::print(stderr, "{} bytes in {}: {}, first after {}, then one every {}\n", written, duration_text(1e6 * seconds),
               quantity(speed, " tokens/s"), duration_text(1e6 * first_s), duration_text(1e3 * latency_ms));
  const generate::EngineStats stats = engine.stats();
  write_json(common.json, {{"texts", printed},
                           {"tokens", written},
                           {"seconds", seconds},
                           {"tokens_per_s", speed},
                           {"first_ms", 1e3 * first_s},
                           {"latency_ms", latency_ms},
                           {"steps", stats.steps},
                           {"prefilled", stats.prefilled},
                           {"waits", stats.waits}});
  return 0;
}

}  // namespace lorry::cli
