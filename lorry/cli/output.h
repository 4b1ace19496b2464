#pragma once

// Output of commands. Results go to standard output, progress to standard error. A file given by the user may be "-",
// which is standard output; then the table goes to standard error.

#include <fmt/core.h>

#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lorry::cli {

/// The width of the terminal that `stream` writes to, in columns; none if it is not a terminal.
std::optional<int> terminal_columns(std::FILE* stream);

/// `text` broken at spaces into lines of at most `columns`, the later ones indented by `indent`. A longer word gets a
/// line of its own.
std::string folded(std::string_view text, int columns, int indent);

/// Writes `text` to `stream`. Throws IoError "cannot write standard output: ...".
void write(std::FILE* stream, std::string_view text);

/// Flushes standard output. Throws IoError if any output has been lost.
void flush_standard_output();

/// Whether `path` is "-" or a name of the file that standard output is.
bool is_standard_output(const std::string& path);

/// Writes a whole file. "-" is standard output. A regular file is either written completely or unchanged; a FIFO or a
/// device is written to directly. An empty path writes nothing. Throws IoError.
void write_file(const std::string& path, std::string_view text);

/// Checks, before the work, whether write_file can write there. Creates no file and changes none; a FIFO or a device is
/// not opened. Throws IoError like write_file.
void require_writable(const std::string& path);

/// A command's output for people. On a terminal, lines are folded to its width.
class Table {
 public:
  /// On standard output; on standard error if one of `files` is standard output.
  explicit Table(std::initializer_list<std::string_view> files);

  template <class... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    print_folded(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  /// Prints a line of parts that are not broken: on a terminal, a part that does not fit begins a new line.
  void print_row(const std::vector<std::string>& parts) const;
  std::FILE* stream() const { return stream_; }

 private:
  void print_folded(std::string_view text) const;

  std::FILE* stream_;
  std::optional<int> columns_;
};

}  // namespace lorry::cli
