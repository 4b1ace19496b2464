#include "lorry/bench/lessons/plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lorry/base/units.h"

namespace lorry::bench::lessons {
namespace {

/// Beyond this factor between the times, bars on a linear axis cannot be told apart.
constexpr double kLinear = 20;

/// Maps the logarithm of a value to a position.
struct LogScale {
  double low, high;  ///< powers of ten
  double from, to;   ///< positions
  double operator()(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

LogScale log_scale(double least, double most, double from, double to) {
  const double low = std::floor(std::log10(least)), high = std::max(low + 1, std::ceil(std::log10(most)));
  return {low, high, from, to};
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kind, x1, y1, x2,
                     y2);
}
std::string label(double x, double y, std::string_view text, const char* kind) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kind, x, y, escaped(text));
}

constexpr double kRow = 42, kBar = 14;

/// A way's name, its time, and below them its bar; share: of the width, 0 to 1.
std::string bar(const Comparison& comparison, size_t i, double share) {
  const Way& way = comparison.ways[i];
  const double y = static_cast<double>(i) * kRow;
  const char* kind = i == 0 ? "bar first" : i == comparison.good ? "bar good" : "bar";
  return label(0, y + 14, way.name, "way") +
         fmt::format("<text class=\"time\" x=\"100%\" y=\"{:.1f}\">{}</text>", y + 14,
                     duration_text(way.time.median_us)) +
         fmt::format("<rect class=\"{}\" x=\"0\" y=\"{:.1f}\" width=\"{:.2f}%\" height=\"{}\" rx=\"2\"/>", kind, y + 20,
                     100 * std::max(0.003, share), kBar);
}

struct Point {
  double intensity, rate;
  std::string name;
};

std::vector<Point> points_of(const std::vector<Lesson>& lessons) {
  std::vector<Point> points;
  for (const Lesson& lesson : lessons)
    for (const Comparison& comparison : lesson.comparisons)
      for (const Way& way : comparison.ways)
        if (way.work.flops > 0 && way.work.bytes > 0 && way.time.median_us > 0)
          points.push_back(
              {way.work.flops / way.work.bytes, way.work.flops / way.time.median_us,
               fmt::format("lesson {}, {}: {}, {} {}", lesson.number, comparison.title, way.name,
                           quantity(1e6 * way.work.flops / way.time.median_us, "FLOP/s"), way.work.dtype)});
  return points;
}

std::string grid(const LogScale& x, const LogScale& y) {
  std::string out;
  for (double power = x.low; power <= x.high; ++power) {
    const double at = x(std::pow(10, power));
    out += line(at, y.from, at, y.to, "grid") +
           label(at, y.from + 18,
                 power < 0 ? fmt::format("{:g}", std::pow(10, power)) : quantity(std::pow(10, power), ""), "tick");
  }
  for (double power = y.low; power <= y.high; ++power) {
    const double at = y(std::pow(10, power));
    out +=
        line(x.from, at, x.to, at, "grid") + label(x.from - 8, at + 4, quantity(1e6 * std::pow(10, power), ""), "name");
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string bars_of(const Comparison& comparison) {
  double least = comparison.ways[0].time.median_us, most = least;
  for (const Way& way : comparison.ways)
    least = std::min(least, way.time.median_us), most = std::max(most, way.time.median_us);
  const bool logarithmic = least > 0 && most / least > kLinear;
  const LogScale scale = log_scale(logarithmic ? least / 1.01 : 1, logarithmic ? most : 10, 0, 1);
  const double bottom = static_cast<double>(comparison.ways.size()) * kRow;
  // Without a viewBox: bars take their share of the width that there is, and text keeps its size.
  std::string out = fmt::format("<svg class=\"bars\" width=\"100%\" height=\"{:.0f}\" role=\"img\" aria-label=\"{}\">",
                                bottom + (logarithmic ? 20 : 0), escaped("Times of: " + comparison.title));
  for (size_t i = 0; i < comparison.ways.size(); ++i) {
    const double us = comparison.ways[i].time.median_us;
    out += bar(comparison, i, logarithmic ? scale(us) : most > 0 ? us / most : 0);
  }
  if (logarithmic)
    for (double power = scale.low; power <= scale.high; ++power) {
      const char* kind = power == scale.low ? "way" : power == scale.high ? "time" : "tick";
      out += fmt::format("<text class=\"axis {}\" x=\"{:.2f}%\" y=\"{:.0f}\">{}</text>", kind,
                         100 * scale(std::pow(10, power)), bottom + 12, duration_text(std::pow(10, power)));
    }
  return out + "</svg>\n";
}

std::string roofline_of(const Ceilings& ceilings, const std::vector<Lesson>& lessons) {
  if (ceilings.copy_bytes <= 0 || ceilings.flops.empty()) return "";
  const std::vector<Point> points = points_of(lessons);
  double best = 0, least_rate = 0, least = 0.1, most = 10;
  for (const auto& [dtype, rate] : ceilings.flops) {
    best = std::max(best, rate);
    most = std::max(most, 10 * rate / ceilings.copy_bytes);  // beyond the corner of the roof
  }
  least_rate = ceilings.copy_bytes * least;
  for (const Point& p : points) {
    least = std::min(least, p.intensity), most = std::max(most, p.intensity);
    least_rate = std::min(least_rate, p.rate), best = std::max(best, p.rate);
  }
  const LogScale x = log_scale(least, most, 90, 620), y = log_scale(least_rate, best, 360, 20);
  std::string out =
      "<svg class=\"roofline\" viewBox=\"0 0 720 410\" role=\"img\" aria-label=\"Roofline of this device\">" +
      grid(x, y);
  const double first = std::max(std::pow(10, x.low), std::pow(10, y.low) / ceilings.copy_bytes);
  double highest = 0;
  for (const auto& [dtype, rate] : ceilings.flops) highest = std::max(highest, rate);
  out += line(x(first), y(first * ceilings.copy_bytes), x(highest / ceilings.copy_bytes), y(highest), "roof");
  for (const auto& [dtype, rate] : ceilings.flops)
    out += line(x(rate / ceilings.copy_bytes), y(rate), x.to, y(rate), "roof") +
           label(x.to + 6, y(rate) + 4, dtype, "value");
  for (const Point& p : points)
    out += fmt::format("<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"><title>{}</title></circle>",
                       x(p.intensity), y(p.rate), escaped(p.name));
  return out + label((x.from + x.to) / 2, 402, "FLOPs for each byte of memory", "tick") +
         label(x.from, 12, "FLOP/s", "name") + "</svg>\n";
}

}  // namespace lorry::bench::lessons
