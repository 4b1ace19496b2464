#include "lorry/cli/output.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "lorry/base/error.h"
#include "lorry/io/file.h"

namespace lorry::cli {
namespace {

constexpr int kIndent = 4;  // of a folded line

[[noreturn]] void raise_lost(std::FILE* stream, int error) {
  raise<IoError>("cannot write standard {}: {}", stream == stdout ? "output" : "error",
                 std::generic_category().message(error));
}

}  // namespace

std::optional<int> terminal_columns(std::FILE* stream) {
  const int file = fileno(stream);
  if (isatty(file) == 0) return std::nullopt;
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string folded(std::string_view text, int columns, int indent) {
  std::string lines;
  const size_t width = static_cast<size_t>(std::max(columns, 1));
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    // A word with the spaces, or the line break, before it.
    const size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const size_t end =
        word < text.size() && text[word] == '\n' ? word + 1 : std::min(text.find_first_of(" \n", word), text.size());
    if (word < end && text[word] == '\n') {
      lines += '\n';
      column = 0;
    } else if (column > 0 && word < end && column + (end - at) > width) {
      lines += '\n' + std::string(static_cast<size_t>(indent), ' ');
      lines += text.substr(word, end - word);
      column = static_cast<size_t>(indent) + (end - word);
    } else {
      lines += text.substr(at, end - at);
      column += end - at;
    }
    at = end;
  }
  return lines;
}

void write(std::FILE* stream, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size()) raise_lost(stream, errno);
}

void flush_standard_output() {
  if (std::fflush(stdout) != 0) raise_lost(stdout, errno);
  require<IoError>(std::ferror(stdout) == 0, "cannot write standard output: some of it was lost");
}

bool is_standard_output(const std::string& path) {
  if (path == "-") return true;
  struct stat named, open;
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

void write_file(const std::string& path, std::string_view text) {
  if (path.empty()) return;
  if (is_standard_output(path)) {
    write(stdout, text);
    return;
  }
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
}

void require_writable(const std::string& path) {
  if (path.empty() || is_standard_output(path)) return;
  struct stat facts;
  const bool is_there = ::stat(path.c_str(), &facts) == 0;
  if (is_there && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)) {
    if (::access(path.c_str(), W_OK) != 0) io::raise_io("cannot open", path, errno);
    return;
  }
  const io::AtomicFile probe(path);  // without a commit it removes the file
}

Table::Table(std::initializer_list<std::string_view> files)
    : stream_(std::ranges::any_of(files, [](std::string_view file) { return is_standard_output(std::string(file)); })
                  ? stderr
                  : stdout),
      columns_(terminal_columns(stream_)) {}

void Table::print_row(const std::vector<std::string>& parts) const {
  constexpr std::string_view kGap = "   ";
  std::string line, text;
  for (const std::string& part : parts) {
    if (columns_ && !line.empty() && line.size() + kGap.size() + part.size() > static_cast<size_t>(*columns_)) {
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line = std::string(kIndent, ' ') + part;
    } else {
      line += (line.empty() ? "" : std::string(kGap)) + part;
    }
  }
  write(stream_, text + line + "\n");
}

void Table::print_folded(std::string_view text) const {
  write(stream_, columns_ ? folded(text, *columns_, kIndent) : std::string(text));
}

}  // namespace lorry::cli
