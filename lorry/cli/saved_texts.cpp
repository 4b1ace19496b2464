#include "lorry/cli/saved_texts.h"

#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/cli/output.h"
#include "lorry/io/file.h"

namespace lorry::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormat = 1;
constexpr size_t kMostBytes = size_t{1} << 30;

/// Numbers of bytes.
std::vector<int64_t> bytes_from(const Json& x, const char* name) {
  const Json& list = x.at(name);
  require<FormatError>(list.is_array(), "'{}' is no list", name);
  std::vector<int64_t> bytes;
  for (const Json& byte : list) {
    require<FormatError>(byte.is_number_unsigned() && byte.get<uint64_t>() < 256,
                         "an entry of '{}' is no byte; got {}; expected 0 to 255", name, byte.dump());
    bytes.push_back(byte.get<int64_t>());
  }
  return bytes;
}

Json to_json(const generate::Request& r, bool ended) {
  const generate::Sampling& s = r.sampling;
  return {{"tokens", r.tokens}, {"drawn", r.drawn},   {"ended", ended},
          {"seed", s.seed},     {"stream", s.stream}, {"temperature", s.temperature},
          {"top_k", s.top_k},   {"top_p", s.top_p},   {"repetition_penalty", s.repetition_penalty}};
}

generate::Request from_json(const Json& x) {
  generate::Request r{.tokens = bytes_from(x, "tokens")};
  const auto whole = [&](const char* name, uint64_t most) {
    const Json& found = x.at(name);
    require<FormatError>(found.is_number_unsigned() && found.get<uint64_t>() <= most,
                         "'{}' is out of range; got {}; expected 0 to {}", name, found.dump(), most);
    return found.get<uint64_t>();
  };
  const auto number = [&](const char* name, double least, double most) {
    const Json& found = x.at(name);
    require<FormatError>(found.is_number() && found.get<double>() >= least && found.get<double>() <= most,
                         "'{}' is out of range; got {}; expected {} to {}", name, found.dump(), least, most);
    return found.get<double>();
  };
  require<FormatError>(!r.tokens.empty(), "a text has no tokens");
  r.drawn = static_cast<int64_t>(whole("drawn", r.tokens.size() - 1));
  r.sampling = {.temperature = number("temperature", 0, 100),
                .top_k = static_cast<int64_t>(whole("top_k", INT64_MAX)),
                .top_p = number("top_p", 1e-6, 1),
                .repetition_penalty = number("repetition_penalty", 1e-3, 1000),
                .seed = whole("seed", UINT64_MAX),
                .stream = whole("stream", UINT64_MAX)};
  return r;
}

Texts parsed(const std::string& text) {
  const Json file = Json::parse(text);
  const Json& format = file.at("format");
  require<FormatError>(format.is_number_integer() && format == kFormat, "another format; got {}; expected {}",
                       format.dump(), kFormat);
  Texts texts;
  const std::vector<int64_t> stop = bytes_from(file, "stop");
  texts.stop.assign(stop.begin(), stop.end());
  require<FormatError>(file.at("texts").is_array() && !file["texts"].empty(), "there is no text");
  for (const Json& entry : file["texts"]) {
    texts.requests.push_back(from_json(entry));
    texts.ended.push_back(entry.at("ended").get<bool>());
    if (!stop.empty()) texts.requests.back().stops = {stop};
  }
  return texts;
}

}  // namespace

std::vector<int64_t> byte_tokens(const std::string& text) {
  std::vector<int64_t> tokens;
  for (const unsigned char byte : text) tokens.push_back(byte);
  return tokens;
}

void save_texts(const std::string& path, const Texts& texts) {
  if (path.empty()) return;
  Json all = Json::array();
  for (size_t i = 0; i < texts.requests.size(); ++i) all.push_back(to_json(texts.requests[i], texts.ended[i]));
  write_file(path, Json{{"format", kFormat}, {"stop", byte_tokens(texts.stop)}, {"texts", all}}.dump() + "\n");
}

Texts load_texts(const std::string& path) {
  try {
    return parsed(io::read_text(path, kMostBytes));
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    raise<FormatError>("generate: '{}' was not written by --save: {}", path, what.substr(what.find("] ") + 2));
  } catch (const FormatError& error) {
    raise<FormatError>("generate: '{}' was not written by --save: {}", path, error.what());
  }
}

}  // namespace lorry::cli
