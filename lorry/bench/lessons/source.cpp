#include "lorry/bench/lessons/source.h"

#include <algorithm>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/bench/lessons/embedded.h"

namespace lorry::bench::lessons {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// The position after the brace or bracket that matches the one at `open`. Skips string literals.
size_t after_match(std::string_view text, size_t open) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = open; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '{' || c == '(' || c == '['))
      ++depth;
    else if (!quoted && (c == '}' || c == ')' || c == ']'))
      if (--depth == 0) return i + 1;
  }
  raise<ValueError>("lessons: a source has a bracket without its match near '{}'", text.substr(open, 40));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

size_t indentation(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

/// Lines without their common indentation, and without blank ones at the ends.
std::string dedented(std::string_view text) {
  std::vector<std::string_view> lines = lines_of(text);
  const auto blank = [](std::string_view line) { return line.find_first_not_of(' ') == kNone; };
  while (!lines.empty() && blank(lines.back())) lines.pop_back();
  while (!lines.empty() && blank(lines.front())) lines.erase(lines.begin());
  size_t common = kNone;
  for (const std::string_view line : lines)
    if (!blank(line)) common = std::min(common, indentation(line));
  std::string out;
  for (const std::string_view line : lines) {
    if (!out.empty()) out += '\n';
    if (!blank(line)) out += line.substr(common);
  }
  return out.substr(0, out.find_last_not_of(' ') + 1);
}

/// The body of the lambda that begins at `at`, and the position after it.
std::pair<std::string, size_t> lambda(std::string_view source, size_t at) {
  size_t open = after_match(source, at);
  if (source[open] == '(') open = after_match(source, open);
  open = source.find('{', open);
  const size_t end = after_match(source, open);
  return {dedented(source.substr(open + 1, end - open - 2)), end};
}

size_t skip_spaces(std::string_view source, size_t at) {
  return std::min(source.find_first_not_of(" \n", at), source.size());
}

}  // namespace

std::string_view source_of(std::string_view file) {
  for (const EmbeddedSource& source : embedded_sources())
    if (source.file == file) return source.text;
  raise<ValueError>("lessons: the source '{}' is not embedded in this build", file);
}

std::string code_of(std::string_view source, std::string_view key) {
  const std::string literal = fmt::format("\"{}\"", key);
  size_t at = kNone;
  for (size_t i = source.find(literal); i != kNone; i = source.find(literal, i + 1)) {
    const size_t next = source.find("[&", i);
    const size_t end = source.find(';', i);
    if (next == kNone || next > end) continue;  // the name alone
    require<ValueError>(at == kNone, "lessons: two ways of one source are called '{}'", key);
    at = next;
  }
  require<ValueError>(at != kNone, "lessons: no lambda follows the name '{}'", key);
  const auto [first, end] = lambda(source, at);
  size_t second = skip_spaces(source, end);
  if (source.substr(second, 1) == ",") second = skip_spaces(source, second + 1);
  if (source.substr(second, 2) != "[&") return first;
  return fmt::format("// before each call, not timed:\n{}\n// timed:\n{}", first, lambda(source, second).first);
}

std::string given_of(std::string_view source, std::string_view key) {
  const std::string comment = fmt::format("// given: {}\n", key);
  const size_t at = source.find(comment);
  if (at == kNone) return "";
  const size_t line = source.rfind('\n', at) + 1, indent = at - line;
  std::string_view rest = source.substr(at + comment.size());
  std::string text;
  for (const std::string_view row : lines_of(rest)) {
    if (row.empty() || indentation(row) < indent) break;
    text += fmt::format("{}\n", row);
  }
  return dedented(text);
}

std::string function_of(std::string_view source, std::string_view head) {
  const size_t at = source.find(head);
  require<ValueError>(at != kNone, "lessons: no function begins with '{}'", head);
  const size_t open = source.find(" {", at) + 1;
  return dedented(source.substr(at, after_match(source, open) - at));
}

}  // namespace lorry::bench::lessons
