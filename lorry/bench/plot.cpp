#include "lorry/bench/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>

namespace lorry::bench {
namespace {

/// A gnuplot string: single quotes, doubled where they occur.
std::string quote(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

/// Runs a gnuplot script and returns the drawing. Gnuplot's messages are discarded; its exit status counts.
std::optional<std::string> run_gnuplot(const std::string& script) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  if (!file || std::fwrite(script.data(), 1, script.size(), file.get()) != script.size()) return std::nullopt;
  if (std::fflush(file.get()) != 0) return std::nullopt;
  // The file has no name, so gnuplot opens it by the descriptor that it inherits.
  std::FILE* pipe = popen(fmt::format("gnuplot /proc/self/fd/{} 2>/dev/null", fileno(file.get())).c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string svg;
  char piece[4096];
  for (size_t got; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) svg.append(piece, got);
  if (pclose(pipe) != 0 || svg.empty()) return std::nullopt;
  return svg;
}

std::string head(const std::string& title, int width, int height) {
  return fmt::format(
      "set terminal svg size {},{} font 'sans,13' background rgb 'white'\nset title {} noenhanced\n"
      "set grid back lc rgb '#dddddd'\n",
      width, height, quote(title));
}

/// The legend, below the axes, where it covers nothing.
std::string key_below(int columns) {
  return fmt::format("set key outside below center horizontal maxcols {} noenhanced\n", columns);
}

}  // namespace

bool can_plot() { return std::system("command -v gnuplot >/dev/null 2>&1") == 0; }

std::optional<std::string> plot_curves(const std::string& title, const std::string& x, const std::string& y,
                                       const std::vector<Curve>& curves) {
  static constexpr const char* kColours[] = {"#9db8d9", "#c0392b", "#27ae60", "#8e44ad",
                                             "#e67e22", "#34689a", "#7f8c8d", "#16a085"};
  std::string script = head(title, 800, 480);
  script += fmt::format("set xlabel {}\nset ylabel {}\n{}plot ", quote(x), quote(y), key_below(2));
  std::string data;
  for (size_t i = 0; i < curves.size(); ++i) {
    script += fmt::format("{}'-' with {} lc rgb '{}' lw 2 title {}", i ? ", " : "",
                          curves[i].marks ? "linespoints pt 7 ps 0.5" : "lines", kColours[i % std::size(kColours)],
                          quote(curves[i].title));
    for (const auto& [px, py] : curves[i].points) data += fmt::format("{} {}\n", px, py);
    data += "e\n";
  }
  return run_gnuplot(script + "\n" + data);
}

std::optional<std::string> plot_bars(const std::string& title, const std::string& unit,
                                     const std::vector<std::pair<std::string, double>>& bars) {
  std::string script = head(title, 800, 100 + 32 * static_cast<int>(bars.size()));
  script += fmt::format(
      "set xlabel {}\nset xrange [0:*]\nset yrange [-0.6:{}] reverse\nset style fill solid 0.8 noborder\nset ytics ({}",
      quote(unit), static_cast<double>(bars.size()) - 0.4, "");
  std::string data;
  for (size_t i = 0; i < bars.size(); ++i) {
    script += fmt::format("{}{} {}", i ? ", " : "", quote(bars[i].first), i);
    data += fmt::format("0 {} 0 {} {} {}\n", i, bars[i].second, static_cast<double>(i) - 0.35,
                        static_cast<double>(i) + 0.35);
  }
  return run_gnuplot(script + ") noenhanced\nplot '-' using 1:2:3:4:5:6 with boxxyerror lc rgb '#34689a' notitle\n" +
                     data + "e\n");
}

std::optional<std::string> plot_groups(const std::string& title, const std::string& unit,
                                       const std::vector<std::string>& groups, const std::vector<Series>& bars,
                                       const Series& line) {
  static constexpr const char* kColours[] = {"#c8d6e5", "#9db8d9", "#5c8dc4", "#34689a", "#e8b873",
                                             "#d98b4a", "#a3c9a8", "#5f9e6e", "#b9a3d0", "#8e6bb0"};
  // A group has width 1; its bars share 0.8 of it.
  const double width = 0.8 / static_cast<double>(std::max<size_t>(bars.size(), 1));
  size_t longest = 0;
  for (const std::string& group : groups) longest = std::max(longest, group.size());
  const int group_width = std::max(140, 9 * static_cast<int>(longest));  // pixels; a letter of a name takes 9
  const int key_rows = static_cast<int>(bars.size()) + 1;
  std::string script =
      head(title, std::max(640, 100 + group_width * static_cast<int>(groups.size())), 440 + 18 * key_rows);
  script +=
      fmt::format("set ylabel {}\nset logscale y\nset style fill solid 0.9 noborder\n{}", quote(unit), key_below(1));
  script += fmt::format("set xrange [-0.5:{}]\nset xtics (", static_cast<double>(groups.size()) - 0.5);
  for (size_t g = 0; g < groups.size(); ++g) script += fmt::format("{}{} {}", g ? ", " : "", quote(groups[g]), g);
  script += ") noenhanced\nplot ";
  std::string data;
  for (size_t i = 0; i < bars.size(); ++i) {
    script += fmt::format("'-' using 1:2:({}) with boxes lc rgb '{}' title {}, ", width,
                          kColours[i % std::size(kColours)], quote(bars[i].title));
    for (size_t g = 0; g < groups.size(); ++g)
      if (bars[i].values[g])
        data += fmt::format("{} {}\n", static_cast<double>(g) - 0.4 + (static_cast<double>(i) + 0.5) * width,
                            *bars[i].values[g]);
    data += "e\n";
  }
  script +=
      fmt::format("'-' using 1:2:(0.45) with xerrorbars pt 0 lw 2 lc rgb '#c0392b' title {}\n", quote(line.title));
  for (size_t g = 0; g < groups.size(); ++g)
    if (line.values[g]) data += fmt::format("{} {}\n", g, *line.values[g]);
  return run_gnuplot(script + data + "e\n");
}

}  // namespace lorry::bench
