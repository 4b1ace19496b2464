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

void write(std::FILE* stream, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size()) raise_lost(stream, errno);
}

void flush_standard_output() {
  const bool lost_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) raise_lost(stdout, errno);
  if (lost_before) raise_lost(stdout, EIO);
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

Table::Table(std::initializer_list<std::string_view> files)
    : stream_(std::ranges::any_of(files, [](std::string_view file) { return is_standard_output(std::string(file)); })
                  ? stderr
                  : stdout) {}

}  // namespace lorry::cli
