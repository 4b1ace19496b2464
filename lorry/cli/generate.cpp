#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/cli/commands.h"
#include "lorry/cli/output.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_folder.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/units.h"
#include "lorry/cli/utf8.h"
#include "lorry/formula/philox.h"
#include "lorry/formula/random.h"
#include "lorry/io/checkpoint.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"

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

/// A model that reads its own output, one position at a time.
class Writer {
 public:
  Writer(const std::filesystem::path& checkpoint, const std::string& prompt, int64_t batch)
      : texts_(static_cast<size_t>(batch), prompt) {
    const io::Checkpoint loaded = io::load_checkpoint(checkpoint);
    check_against_tensors(loaded);
    const DType dtype = parse_dtype(io::setting<std::string>(loaded.state.config, "dtype"));
    model_ = std::make_unique<nn::GPT>(model_config(loaded.state.config));
    model_->to(dtype);
    model_->eval();
    io::restore(model_->state_dict(), loaded.model,
                fmt::format("generate: '{}'", (checkpoint / "model.safetensors").string()));
    cache_ = std::make_unique<nn::KVCache>(model_->config(), batch, lorry::Options{.dtype = dtype});
  }

  /// The logits for the byte after the prompt: f32 [batch, 256].
  Tensor begin() { return read_again(model_->config().context); }

  /// The logits after one more byte per text. When the context is full, it restarts from its second half.
  Tensor write(const std::string& bytes) {
    for (size_t i = 0; i < texts_.size(); ++i) texts_[i].push_back(bytes[i]);
    if (cache_->length() == cache_->capacity()) return read_again(std::max<int64_t>(1, model_->config().context / 2));
    return read(1);
  }

 private:
  Tensor read_again(int64_t at_most) {
    cache_->truncate(0);
    return read(std::min<int64_t>(at_most, static_cast<int64_t>(texts_[0].size())));
  }
  /// Runs the model on the last `count` bytes of every text.
  Tensor read(int64_t count) {
    const Tensor tokens = empty({static_cast<int64_t>(texts_.size()), count}, {kI64, kCPU});
    int64_t* token = tokens.data<int64_t>();
    for (const std::string& text : texts_)
      for (size_t i = text.size() - static_cast<size_t>(count); i < text.size(); ++i)
        *token++ = static_cast<unsigned char>(text[i]);
    return model_->forward(tokens.to(default_device()), *cache_).to(kF32);
  }

  std::vector<std::string> texts_;
  std::unique_ptr<nn::GPT> model_;
  std::unique_ptr<nn::KVCache> cache_;
};

/// Draws the next byte of every text.
class Sampler {
 public:
  explicit Sampler(const GenerateOptions& options, uint64_t seed)
      : seed_(seed),
        temperature_(full({options.batch}, options.temperature, {kF32, default_device()})),
        top_k_(full({options.batch}, std::min<int64_t>(options.top_k, INT32_MAX), {kI32, default_device()})),
        top_p_(full({options.batch}, options.top_p, {kF32, default_device()})) {}

  /// position: how many bytes were drawn before. One draw per position and one random block per text: a text does not
  /// depend on how many are generated with it.
  std::string draw(const Tensor& logits, int64_t position) const {
    const Tensor uniform = empty({logits.size(0)}, {kF64, kCPU});
    for (int64_t i = 0; i < uniform.numel(); ++i) {
      const formula::Words4 words =
          formula::random_block({seed_, static_cast<uint64_t>(position)}, static_cast<uint64_t>(i));
      uniform.data<double>()[i] = formula::unit_f64(words.word[0], words.word[1]);
    }
    const std::vector<int64_t> tokens =
        sample_tokens(logits, temperature_, top_k_, top_p_, uniform.to(default_device())).to_vector<int64_t>();
    return {tokens.begin(), tokens.end()};
  }

 private:
  uint64_t seed_;
  Tensor temperature_, top_k_, top_p_;
};

/// Prints a piece of text at once.
void show(const Table& table, const std::string& text) {
  write(table.stream(), text);
  if (table.stream() == stdout) flush_standard_output();
}

}  // namespace

int run_generate(const GenerateOptions& options, const CommonOptions& common) {
  require<ValueError>(!options.prompt.empty(),
                      "generate: the prompt is empty; expected at least one byte to go on from");
  require_writable(common.json);
  Writer writer(find_checkpoint(options.checkpoint, "generate"), options.prompt, options.batch);
  const Sampler sampler(options, common.seed);
  const Table table{common.json};
  const bool streams = options.batch == 1;

  std::vector<Line> lines(static_cast<size_t>(options.batch));
  std::string next;
  if (streams && options.echo) show(table, options.prompt);
  const auto start = Clock::now();
  double first_s = 0;
  int64_t written = 0;
  for (int64_t position = 0; position < options.tokens; ++position) {
    const Tensor logits = position == 0 ? writer.begin() : writer.write(next);
    next = sampler.draw(logits, position);
    bool all_stopped = true;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].stopped) continue;
      const std::string visible = lines[i].add(static_cast<unsigned char>(next[i]), options.stop);
      if (streams) show(table, visible);
      ++written;
      all_stopped &= lines[i].stopped;
    }
    if (position == 0) first_s = seconds_since(start);
    if (all_stopped) break;
  }
  const double seconds = seconds_since(start);

  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string rest = lines[i].finish();
    if (streams)
      show(table, rest + "\n");
    else
      table.print("{}--- {} ---\n{}{}\n", i ? "\n" : "", i + 1, options.echo ? options.prompt : "", lines[i].printed);
    texts.push_back(lines[i].printed);
  }
  const double speed = static_cast<double>(written) / seconds,
               after_first = static_cast<double>(written) - static_cast<double>(lines.size());
  const double latency_ms =
      after_first > 0 ? 1e3 * (seconds - first_s) * static_cast<double>(lines.size()) / after_first : 0;
  if (!common.quiet)
    fmt::print(stderr, "{} bytes in {}: {}, first after {}, then one every {}\n", written, duration_text(1e6 * seconds),
               quantity(speed, " tokens/s"), duration_text(1e6 * first_s), duration_text(1e3 * latency_ms));
  write_json(common.json, {{"texts", texts},
                           {"tokens", written},
                           {"seconds", seconds},
                           {"tokens_per_s", speed},
                           {"first_ms", 1e3 * first_s},
                           {"latency_ms", latency_ms}});
  return 0;
}

}  // namespace lorry::cli
