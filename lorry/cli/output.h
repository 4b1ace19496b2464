#pragma once

// Where a command writes. Results go to standard output; progress goes to standard error. A file that the user names
// may be "-", which is standard output: the table makes room for it and goes to standard error.

#include <fmt/core.h>

#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lorry::cli {

/// The width of the terminal that `stream` leads to, in columns; nothing where it leads elsewhere.
std::optional<int> terminal_columns(std::FILE* stream);

/// `text` broken between words into lines of at most `columns`, those after the first indented by `indent`. A word that
/// is longer has a line of its own.
std::string folded(std::string_view text, int columns, int indent);

/// Writes `text` to `stream`. Throws IoError "cannot write standard output: ...".
void write(std::FILE* stream, std::string_view text);

/// Writes what is left of standard output. Throws IoError where any of it is lost, now or before.
void flush_standard_output();

/// True for "-", and for any name of the file that standard output is.
bool is_standard_output(const std::string& path);

/// Writes a whole file: "-" is standard output, a regular file is complete or as it was, and a FIFO or a device is
/// written through. An empty path writes nothing. Throws IoError.
void write_file(const std::string& path, std::string_view text);

/// Finds out before the work whether write_file can write there. Leaves no file, and one that is there as it is; a FIFO
/// or a device is not opened. Throws IoError as write_file does.
void require_writable(const std::string& path);

/// What a command prints for a person. On a terminal its lines are folded to the width.
class Table {
 public:
  /// On standard output, or on standard error where one of `files` goes to standard output.
  explicit Table(std::initializer_list<std::string_view> files);

  template <class... Arguments>
  void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    print_folded(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  /// A line of parts that stay whole: on a terminal, one that does not fit begins a new line.
  void print_row(const std::vector<std::string>& parts) const;
  std::FILE* stream() const { return stream_; }

 private:
  void print_folded(std::string_view text) const;

  std::FILE* stream_;
  std::optional<int> columns_;
};

}  // namespace lorry::cli
