#include "lorry/cli/saved_texts.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/cli/output.h"

namespace lorry::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;

std::vector<int64_t> bytes_of(const std::string& text) {
  std::vector<int64_t> tokens;
  for (const unsigned char byte : text) tokens.push_back(byte);
  return tokens;
}

Json to_json(const generate::Request& r, bool ended) {
  const generate::Sampling& s = r.sampling;
  return {{"tokens", r.tokens}, {"drawn", r.drawn},   {"ended", ended},
          {"seed", s.seed},     {"stream", s.stream}, {"temperature", s.temperature},
          {"top_k", s.top_k},   {"top_p", s.top_p},   {"repetition_penalty", s.repetition_penalty}};
}

generate::Request from_json(const Json& x) {
  generate::Request r;
  const auto get = [&](const char* name, auto& value) {
    const Json& found = x.at(name);
    using Value = std::remove_cvref_t<decltype(value)>;
    const bool fits = std::is_same_v<Value, double>     ? found.is_number()
                      : std::is_same_v<Value, uint64_t> ? found.is_number_unsigned()
                      : std::is_same_v<Value, int64_t>  ? found.is_number_integer()
                                                        : found.is_array();
    require<FormatError>(fits, "'{}' has another type", name);
    found.get_to(value);
  };
  get("tokens", r.tokens);
  get("drawn", r.drawn);
  get("seed", r.sampling.seed);
  get("stream", r.sampling.stream);
  get("temperature", r.sampling.temperature);
  get("top_k", r.sampling.top_k);
  get("top_p", r.sampling.top_p);
  get("repetition_penalty", r.sampling.repetition_penalty);
  require<FormatError>(r.drawn >= 0 && r.drawn < static_cast<int64_t>(r.tokens.size()),
                       "'drawn' is {} of {} tokens; expected fewer", r.drawn, r.tokens.size());
  for (const int64_t token : r.tokens)
    require<FormatError>(token >= 0 && token < 256, "token {} is no byte; expected 0 to 255", token);
  return r;
}

Texts parsed(const std::string& text) {
  const Json file = Json::parse(text);
  const int format = file.at("format").get<int>();
  require<FormatError>(format == kFormat, "another format; got {}; expected {}", format, kFormat);
  Texts texts;
  for (const int64_t byte : file.at("stop").get<std::vector<int64_t>>()) {
    require<FormatError>(byte >= 0 && byte < 256, "byte {} of the stop is no byte; expected 0 to 255", byte);
    texts.stop.push_back(static_cast<char>(byte));
  }
  for (const Json& entry : file.at("texts")) {
    texts.requests.push_back(from_json(entry));
    texts.ended.push_back(entry.at("ended").get<bool>());
    if (!texts.stop.empty()) texts.requests.back().stops = {bytes_of(texts.stop)};
  }
  require<FormatError>(!texts.requests.empty(), "there is no text");
  return texts;
}

}  // namespace

void save_texts(const std::string& path, const Texts& texts) {
  if (path.empty()) return;
  Json all = Json::array();
  for (size_t i = 0; i < texts.requests.size(); ++i) all.push_back(to_json(texts.requests[i], texts.ended[i]));
  write_file(path, Json{{"format", kFormat}, {"stop", bytes_of(texts.stop)}, {"texts", all}}.dump() + "\n");
}

Texts load_texts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  require<IoError>(file.is_open() && !file.bad(), "generate: cannot read '{}'", path);
  try {
    return parsed(text);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    raise<FormatError>("generate: '{}' was not written by --save: {}", path, what.substr(what.find("] ") + 2));
  } catch (const FormatError& error) {
    raise<FormatError>("generate: '{}' was not written by --save: {}", path, error.what());
  }
}

}  // namespace lorry::cli
