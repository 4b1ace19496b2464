#include "lorry/io/checkpoint.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "lorry/io/file.h"
#include "lorry/io/safetensors_header.h"

namespace lorry::io {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kModel = "model.safetensors", kOptimizer = "optimizer.safetensors", kState = "state.json";
constexpr std::array kFiles = {kModel, kOptimizer, kState};
constexpr std::string_view kFormat = "lorry-checkpoint";
constexpr int64_t kVersion = 1;
constexpr std::size_t kMaxState = std::size_t{1} << 20;

Json to_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [name, value] : settings) {
    if (const double* number = std::get_if<double>(&value))
      require<ValueError>(std::isfinite(*number), "checkpoint: setting '{}' is not finite; got {}", printable(name),
                          *number);
    Json& target = json[name];
    std::visit([&](const auto& v) { target = v; }, value);
  }
  return json;
}

std::string to_text(const TrainingState& state) {
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"step", state.step},
                     {"random", {{"seed", state.seed}, {"offset", state.random_offset}}},
                     {"data_position", state.data_position},
                     {"schedule", to_json(state.schedule)},
                     {"config", to_json(state.config)}};
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    raise<ValueError>("checkpoint: a setting is not UTF-8 text");
  }
}

/// Reads typed values from a state file; error messages name the file and the key.
class StateReader {
 public:
  StateReader(std::string source, const std::string& text) : source_(std::move(source)) {
    json_ = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    check(json_.is_object(), "is not a JSON object");
  }

  TrainingState read() const {
    check(json_.value("format", Json()) == Json(kFormat), "is not the state of a checkpoint");
    const auto version = unsigned_number(json_, "version");
    require<FormatError>(version == kVersion, "checkpoint '{}': version is not known; got {}; expected {}", source_,
                         version, kVersion);
    TrainingState state;
    const uint64_t step = unsigned_number(json_, "step");
    check(step <= INT64_MAX, "has a 'step' beyond 2^63");
    state.step = static_cast<int64_t>(step);
    const Json& random = object(json_, "random");
    state.seed = unsigned_number(random, "seed");
    state.random_offset = unsigned_number(random, "offset");
    state.data_position = unsigned_number(json_, "data_position");
    state.schedule = settings("schedule");
    state.config = settings("config");
    return state;
  }

 private:
  void check(bool condition, std::string_view what) const {
    require<FormatError>(condition, "checkpoint '{}': the file {}", source_, what);
  }

  const Json& object(const Json& in, const char* key) const {
    require<FormatError>(in.contains(key) && in[key].is_object(), "checkpoint '{}': '{}' is missing or no object",
                         source_, key);
    return in[key];
  }
  uint64_t unsigned_number(const Json& in, const char* key) const {
    require<FormatError>(in.contains(key) && in[key].is_number_unsigned(),
                         "checkpoint '{}': '{}' is missing or no whole number", source_, key);
    return in[key].get<uint64_t>();
  }
  Settings settings(const char* key) const {
    Settings result;
    for (const auto& [name, value] : object(json_, key).items()) {
      if (value.is_boolean())
        result[name] = value.get<bool>();
      else if (value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX))
        result[name] = value.get<int64_t>();
      else if (value.is_number_float())
        result[name] = value.get<double>();
      else if (value.is_string())
        result[name] = value.get<std::string>();
      else
        raise<FormatError>("checkpoint '{}': setting '{}' in '{}' is neither a number, a truth value nor text", source_,
                           printable(name), key);
    }
    return result;
  }

  std::string source_;
  Json json_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(const std::filesystem::path& directory, const TrainingState& state)
    : state_(to_text(state)), staged_(directory, kFiles) {}

void CheckpointWriter::commit() {
  AtomicFile file(path() / kState);
  file.write(state_);
  file.commit();
  staged_.commit();
}

std::filesystem::path CheckpointWriter::model_in(const std::filesystem::path& path) { return path / kModel; }
std::filesystem::path CheckpointWriter::optimizer_in(const std::filesystem::path& path) { return path / kOptimizer; }
Metadata CheckpointWriter::model_metadata() { return {{"format", "pt"}}; }

void save_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint) {
  CheckpointWriter writer(directory, checkpoint.state);
  save_safetensors(writer.model_in(writer.path()), checkpoint.model, writer.model_metadata());
  save_safetensors(writer.optimizer_in(writer.path()), checkpoint.optimizer);
  writer.commit();
}

namespace {
/// An identity that is the same as long as a name refers to the same directory.
std::pair<dev_t, ino_t> identity_of(const std::filesystem::path& path) {
  struct stat facts;
  return ::stat(path.c_str(), &facts) == 0 ? std::pair(facts.st_dev, facts.st_ino) : std::pair<dev_t, ino_t>();
}

/// "optimizer.safetensors" for a directory that lacks this file of a checkpoint; empty if it has all or none of them.
std::string missing_files(const std::filesystem::path& directory) {
  std::vector<std::string_view> missing;
  for (const std::string_view file : kFiles) {
    std::error_code error;
    const auto type = std::filesystem::status(directory / file, error).type();
    if (type == std::filesystem::file_type::not_found) missing.push_back(file);
  }
  return missing.size() == kFiles.size() ? "" : fmt::format("{}", fmt::join(missing, " and no "));
}
}  // namespace

Checkpoint load_checkpoint(const std::filesystem::path& directory) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::filesystem::path found = AtomicDirectory::find(directory);
    const auto before = identity_of(found);
    if (const std::string missing = missing_files(found); !missing.empty()) {
      // A writer may be removing the old one, or have put another in its place.
      if (AtomicDirectory::find(directory) != found || identity_of(found) != before) continue;
      raise<IoError>("checkpoint '{}' is incomplete: there is no {}; expected {}", found.string(), missing,
                     fmt::join(kFiles, ", "));
    }
    Checkpoint checkpoint;
    checkpoint.state = StateReader((found / kState).string(), read_text(found / kState, kMaxState)).read();
    checkpoint.model = load_safetensors(found / kModel);
    checkpoint.optimizer = load_safetensors(found / kOptimizer);
    // If a writer has replaced the directory meanwhile, the files may be of two checkpoints.
    if (identity_of(found) == before) return checkpoint;
  }
  raise<IoError>("cannot read '{}': it is replaced faster than it can be read", directory.string());
}

template <class T>
T setting(const Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  require<FormatError>(found != settings.end(), "checkpoint: setting '{}' is missing", name);
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  if constexpr (std::is_same_v<T, double>)
    if (const int64_t* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  raise<FormatError>("checkpoint: setting '{}' has another type than expected", name);
}

template bool setting<bool>(const Settings&, const std::string&);
template int64_t setting<int64_t>(const Settings&, const std::string&);
template double setting<double>(const Settings&, const std::string&);
template std::string setting<std::string>(const Settings&, const std::string&);

std::map<std::string, double> numbers(const Settings& settings) {
  std::map<std::string, double> all;
  for (const auto& [name, value] : settings) all[name] = setting<double>(settings, name);
  return all;
}

}  // namespace lorry::io
