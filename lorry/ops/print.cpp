#include "lorry/ops/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lorry/ops/internal.h"

namespace lorry {
namespace {

/// Reads elements of a host tensor as the number that is printed.
class Reader {
 public:
  explicit Reader(const Tensor& x) : data_(x.data_ptr()), dtype_(x.dtype()) {}
  bool floating() const { return is_floating(dtype_); }
  double real(int64_t offset) const {
    return visit(dtype_, [&]<class T>(Type<T>) { return static_cast<double>(static_cast<const T*>(data_)[offset]); });
  }
  std::string whole(int64_t offset) const {
    return visit(dtype_, [&]<class T>(Type<T>) -> std::string {
      const T value = static_cast<const T*>(data_)[offset];
      if constexpr (std::is_same_v<T, bool>) {
        return value ? "True" : "False";
      } else {
        return fmt::format("{}", static_cast<int64_t>(value));
      }
    });
  }

 private:
  const void* data_;
  DType dtype_;
};

/// Calls body(offset) for the elements that are printed.
template <class Body>
void for_each_shown(const Layout& layout, int dim, int64_t offset, bool summarise, const Body& body) {
  if (dim == layout.rank) return body(offset);
  const int64_t size = layout.sizes[dim];
  for (int64_t i = 0; i < size; ++i) {
    if (summarise && size > 2 * kPrintEdge && i == kPrintEdge) i = size - kPrintEdge;
    for_each_shown(layout, dim + 1, offset + i * layout.strides[dim], summarise, body);
  }
}

/// One notation and one width for all elements, chosen from those that are shown.
class Format {
 public:
  Format(const Reader& reader, const Layout& layout, bool summarise) : reader_(reader) {
    if (!reader.floating()) {
      for_each_shown(layout, 0, 0, summarise, [&](int64_t offset) { widen(reader.whole(offset)); });
      return;
    }
    double smallest = HUGE_VAL, largest = 0;
    bool any = false, whole = true;
    const auto counts = [](double v) { return std::isfinite(v) && v != 0; };
    for_each_shown(layout, 0, 0, summarise, [&](int64_t offset) {
      const double v = reader.real(offset);
      if (!counts(v)) return;
      any = true;
      whole &= v == std::ceil(v);
      smallest = std::min(smallest, std::abs(v));
      largest = std::max(largest, std::abs(v));
    });
    if (!any) return;
    const bool far_apart = largest / smallest > 1000.0 || largest > 1e8;
    notation_ = far_apart || (!whole && smallest < 1e-4) ? Notation::scientific
                : whole                                  ? Notation::whole
                                                         : Notation::fixed;
    for_each_shown(layout, 0, 0, summarise, [&](int64_t offset) {
      if (const double v = reader.real(offset); counts(v)) widen(number(v));
    });
  }

  int width() const { return width_; }
  std::string operator()(int64_t offset) const {
    const std::string text = reader_.floating() ? number(reader_.real(offset)) : reader_.whole(offset);
    return fmt::format("{:>{}}", text, width_);
  }

 private:
  enum class Notation { whole, fixed, scientific };

  void widen(const std::string& text) { width_ = std::max(width_, static_cast<int>(text.size())); }
  std::string number(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
    switch (notation_) {
      case Notation::whole:
        return fmt::format("{:.0f}.", v);
      case Notation::fixed:
        return fmt::format("{:.{}f}", v, kPrintPrecision);
      default:
        return fmt::format("{:.{}e}", v, kPrintPrecision);
    }
  }

  const Reader& reader_;
  Notation notation_ = Notation::whole;
  int width_ = 1;
};

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

struct Writer {
  const Format& format;
  const Layout& layout;
  bool summarise;

  std::string operator()(int dim, int64_t offset, int indent) const {
    if (dim == layout.rank) return format(offset);
    const int64_t size = layout.sizes[dim];
    const bool last = dim == layout.rank - 1, cut = summarise && size > 2 * kPrintEdge;
    std::vector<std::string> parts;
    for (int64_t i = 0; i < size; ++i) {
      if (cut && i == kPrintEdge) {
        parts.push_back(last ? " ..." : "...");
        i = size - kPrintEdge;
      }
      parts.push_back((*this)(dim + 1, offset + i * layout.strides[dim], indent + 1));
    }
    const std::string next_line(static_cast<size_t>(indent) + 1, ' ');
    if (!last)
      return fmt::format(
          "[{}]",
          join(parts, fmt::format(",{}{}", std::string(static_cast<size_t>(layout.rank - dim - 1), '\n'), next_line)));
    const size_t a_line = static_cast<size_t>(std::max(1, (kPrintWidth - indent) / (format.width() + 2)));
    std::vector<std::string> lines;
    for (size_t i = 0; i < parts.size(); i += a_line)
      lines.push_back(join(std::span(parts).subspan(i, std::min(a_line, parts.size() - i)), ", "));
    return fmt::format("[{}]", join(lines, fmt::format(",\n{}", next_line)));
  }
};

}  // namespace

std::string values_text(const Tensor& x, int indent) {
  if (x.numel() == 0) return "[]";
  announce_host_read(x, waits::Wait::elements);
  const ModeScope quiet(0, kListenerModes);
  const waits::Reason reason(waits::Wait::elements);
  const Tensor host = x.detach().to(kCPU);
  const bool summarise = x.numel() > kPrintThreshold;
  const Reader reader(host);
  const Format format(reader, host.layout(), summarise);
  return Writer{format, host.layout(), summarise}(0, 0, indent);
}

}  // namespace lorry
