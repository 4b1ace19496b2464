#include "lorry/cli/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/io/file.h"

namespace lorry::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN; such a loss is written as null and read back as NaN.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number(const Json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

Json to_json(const StepMetrics& m) {
  return {{"step", m.step},
          {"loss", number(m.loss)},
          {"lr", m.lr},
          {"gradient_norm", number(m.gradient_norm)},
          {"seconds", m.seconds}};
}
Json to_json(const ValidationMetrics& m) { return {{"step", m.step}, {"validation_loss", number(m.loss)}}; }

/// Whether the file can be read back; false for a FIFO or a device.
bool can_be_read_back(const std::filesystem::path& path) {
  std::error_code error;
  return !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error);
}

}  // namespace

RunHistory read_history(const std::filesystem::path& path, int64_t step) {
  RunHistory history;
  if (!can_be_read_back(path)) return history;
  std::ifstream file(path);
  std::string line;
  for (int64_t at = 1; std::getline(file, line) && !file.eof(); ++at) {
    try {
      const Json json = Json::parse(line);
      const int64_t here = json.at("step").get<int64_t>();
      if (!json.contains("validation_loss")) json.at("loss");
      if (here > step) continue;
      if (json.contains("validation_loss"))
        history.validations.push_back({here, number(json["validation_loss"])});
      else
        history.steps.push_back({here, number(json.at("loss")), json.at("lr").get<double>(),
                                 number(json.at("gradient_norm")), json.at("seconds").get<double>()});
    } catch (const Json::exception&) {
      raise<FormatError>("'{}': line {} is no record of a training step", path.string(), at);
    }
  }
  return history;
}

bool is_history(const std::filesystem::path& path) {
  try {
    read_history(path, 0);
  } catch (const FormatError&) {
    return false;
  }
  constexpr std::string_view kBeginning = "{\"step\":";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.starts_with(kBeginning) || kBeginning.starts_with(line);
}

double RunHistory::recent_loss(size_t count) const {
  require<ValueError>(!steps.empty(), "train: no step has been taken");
  count = std::min(count, steps.size());
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i].loss;
  return sum / static_cast<double>(count);
}

std::optional<double> RunHistory::validation_loss() const {
  if (validations.empty()) return std::nullopt;
  return validations.back().loss;
}

MetricsFile::MetricsFile(std::filesystem::path path, int64_t step) : path_(std::move(path)) {
  if (step > 0) history_ = read_history(path_, step);
  if (can_be_read_back(path_)) {
    io::AtomicFile file(path_);
    auto validation = history_.validations.begin();
    for (const StepMetrics& m : history_.steps) {
      file.write(to_json(m).dump() + "\n");
      for (; validation != history_.validations.end() && validation->step <= m.step; ++validation)
        file.write(to_json(*validation).dump() + "\n");
    }
    file.commit();
  }
  file_ = std::fopen(path_.c_str(), "a");
  if (file_ == nullptr) io::raise_io("cannot open", path_, errno);
}

MetricsFile::~MetricsFile() {
  if (file_) std::fclose(file_);
}

void MetricsFile::write(const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
    io::raise_io("cannot write", path_, errno);
}

void MetricsFile::add(const StepMetrics& metrics) {
  write(to_json(metrics).dump() + "\n");
  history_.steps.push_back(metrics);
}

void MetricsFile::add(const ValidationMetrics& metrics) {
  write(to_json(metrics).dump() + "\n");
  history_.validations.push_back(metrics);
}

}  // namespace lorry::cli
