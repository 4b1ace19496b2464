#include "lorry/profile/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lorry/base/units.h"

namespace lorry::profile {
namespace {

constexpr double kWidth = 900, kHeight = 420, kLeft = 90, kTop = 50, kBottom = 60, kRight = 240;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
/// Told apart by people with any colour vision: Okabe and Ito, "Color universal design", 2008.
constexpr const char* kColours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
                                    "#d55e00", "#f0e442", "#7f7f7f", "#b0b0b0"};

std::string head(const std::string& title, double width = kWidth) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.ink{{fill:#222}}.line{{stroke:#222;fill:none}}.paper{{fill:#fff}}.grid{{stroke:#ddd}}"
      "@media(prefers-color-scheme:dark){{.ink{{fill:#ddd}}.line{{stroke:#ddd}}.paper{{fill:#1a1a1a}}"
      ".grid{{stroke:#444}}}}</style>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\"/>\n"
      "<text class=\"ink\" x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      width, kHeight, kLeft, xml_text(title));
}

std::string axes(const std::string& x_label, const std::string& y_label) {
  return fmt::format(
      "<path class=\"line\" d=\"M{0} {1}V{2}H{3}\"/>\n"
      "<text class=\"ink\" x=\"{4}\" y=\"{5}\" text-anchor=\"middle\">{6}</text>\n"
      "<text class=\"ink\" transform=\"translate(18 {7}) rotate(-90)\" text-anchor=\"middle\">{8}</text>\n",
      kLeft, kTop, kTop + kPlotHeight, kLeft + kPlotWidth, kLeft + kPlotWidth / 2, kHeight - 12, xml_text(x_label),
      kTop + kPlotHeight / 2, xml_text(y_label));
}

std::string tick_x(double x, const std::string& label) {
  return fmt::format("<text class=\"ink\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x,
                     kTop + kPlotHeight + 18, xml_text(label));
}
std::string tick_y(double y, const std::string& label) {
  return fmt::format(
      "<path class=\"grid\" d=\"M{0} {1:.1f}H{2}\"/><text class=\"ink\" x=\"{3}\" y=\"{4:.1f}\" "
      "text-anchor=\"end\">{5}</text>\n",
      kLeft, y, kLeft + kPlotWidth, kLeft - 6, y + 4, xml_text(label));
}

std::string legend(size_t i, const std::string& name) {
  const double y = kTop + 10 + 20 * static_cast<double>(i);
  const std::string shown = name.size() > 30 ? "..." + name.substr(name.size() - 27) : name;
  return fmt::format(
      "<rect x=\"{0}\" y=\"{1:.1f}\" width=\"12\" height=\"12\" fill=\"{2}\"/><text class=\"ink\" x=\"{3}\" "
      "y=\"{4:.1f}\">{5}</text>\n",
      kLeft + kPlotWidth + 16, y, kColours[i % std::size(kColours)], kLeft + kPlotWidth + 34, y + 10, xml_text(shown));
}

/// A logarithmic axis from `low` to `high`.
struct LogAxis {
  double low, high, from, to;
  double operator()(double value) const {
    const double share = std::log(std::clamp(value, low, high) / low) / std::log(high / low);
    return from + share * (to - from);
  }
};

/// The names of roofs above their lines, those of lines close together side by side.
std::string names_of_roofs(std::vector<Roofline::Roof> roofs, double x, const LogAxis& y) {
  constexpr double kClose = 14;
  std::ranges::sort(roofs, std::ranges::greater(), &Roofline::Roof::flops_per_s);
  std::string svg;
  for (size_t i = 0; i < roofs.size();) {
    const double at = y(roofs[i].flops_per_s);
    std::string names = roofs[i].name;
    for (++i; i < roofs.size() && y(roofs[i].flops_per_s) - at < kClose; ++i) names += ", " + roofs[i].name;
    svg += fmt::format("<text class=\"ink\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", x, at - 4,
                       xml_text(names));
  }
  return svg;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '&')
      made += "&amp;";
    else if (c == '<')
      made += "&lt;";
    else if (c == '>')
      made += "&gt;";
    else if (c == '"')
      made += "&quot;";
    else if (c == '\'')
      made += "&#39;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      made += c;
  }
  return made;
}

std::string to_svg(const StackedAreas& plot) {
  std::string svg = head(plot.title);
  if (plot.x.empty()) return svg + "<text class=\"ink\" x=\"90\" y=\"80\">nothing was recorded</text>\n</svg>\n";
  double highest = 1;
  for (const std::vector<double>& column : plot.columns) {
    double sum = 0;
    for (const double height : column) sum += height;
    highest = std::max(highest, sum);
  }
  const double first = plot.x.front(), last = std::max(plot.x.back(), first + 1e-3);
  const auto x_of = [&](double x) { return kLeft + kPlotWidth * (x - first) / (last - first); };
  const auto y_of = [&](double y) { return kTop + kPlotHeight * (1 - y / highest); };
  for (int i = 0; i <= 4; ++i) svg += tick_y(y_of(highest * i / 4), quantity(highest * i / 4, "B"));
  for (int i = 0; i <= 4; ++i)
    svg += tick_x(x_of(first + (last - first) * i / 4), duration_text(first + (last - first) * i / 4));
  std::vector<double> below(plot.x.size(), 0);
  for (size_t k = 0; k < plot.names.size(); ++k) {
    std::string path;
    for (size_t i = 0; i < plot.x.size(); ++i)
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x_of(plot.x[i]), y_of(below[i] + plot.columns[i][k]));
    for (size_t i = plot.x.size(); i-- > 0;) path += fmt::format("L{:.1f} {:.1f}", x_of(plot.x[i]), y_of(below[i]));
    svg += fmt::format("<path d=\"{}Z\" fill=\"{}\"/>\n", path, kColours[k % std::size(kColours)]);
    svg += legend(k, plot.names[k]);
    for (size_t i = 0; i < plot.x.size(); ++i) below[i] += plot.columns[i][k];
  }
  return svg + axes(plot.x_label, plot.y_label) + "</svg>\n";
}

std::string to_svg(const Roofline& plot) {
  double top = 1e9, bottom = 1e12, left = 0.05, right = 100;
  for (const Roofline::Roof& roof : plot.roofs) {
    top = std::max(top, roof.flops_per_s);
    right = std::max(right, 8 * roof.flops_per_s / std::max(plot.bytes_per_s, 1.0));
  }
  for (const Roofline::Dot& dot : plot.dots) {
    if (dot.flops_per_s <= 0 || dot.flops_per_byte <= 0) continue;
    bottom = std::min(bottom, dot.flops_per_s), right = std::max(right, 2 * dot.flops_per_byte);
    left = std::min(left, dot.flops_per_byte / 2);
  }
  const LogAxis x{left, right, kLeft, kLeft + kPlotWidth};
  const LogAxis y{std::min(bottom / 4, top / 1e3), 2 * top, kTop + kPlotHeight, kTop};
  std::string svg = head(plot.title, plot.legend ? kWidth : kWidth - kRight + 20);
  for (double tick = std::pow(10, std::ceil(std::log10(y.low))); tick <= y.high; tick *= 10)
    svg += tick_y(y(tick), quantity(tick, ""));
  for (double tick = std::pow(10, std::ceil(std::log10(left))); tick <= right; tick *= 10)
    svg += tick_x(x(tick), fmt::format("{:g}", tick));
  for (const Roofline::Roof& roof : plot.roofs) {
    const double ridge = roof.flops_per_s / std::max(plot.bytes_per_s, 1.0);
    svg += fmt::format("<path class=\"line\" stroke-width=\"1.5\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}H{:.1f}\"/>\n",
                       x(left), y(left * plot.bytes_per_s), x(ridge), y(roof.flops_per_s), x(right));
  }
  svg += names_of_roofs(plot.roofs, x(right) - 4, y);
  size_t shown = 0;
  for (const Roofline::Dot& dot : plot.dots) {
    if (dot.flops_per_s <= 0 || dot.flops_per_byte <= 0) continue;
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\" fill-opacity=\"0.8\"><title>{}</title>"
        "</circle>\n",
        x(dot.flops_per_byte), y(dot.flops_per_s), 4 + 12 * std::sqrt(std::clamp(dot.share, 0.0, 1.0)),
        kColours[plot.legend ? shown % std::size(kColours) : 0], xml_text(dot.name));
    if (plot.legend) svg += legend(shown++, dot.name);
  }
  return svg + axes("operations a byte", "operations a second (FLOP/s)") + "</svg>\n";
}

}  // namespace lorry::profile
