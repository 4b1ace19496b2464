// operator<< for tensors: the values, then what does not go without saying, as PyTorch prints it but with Lorry's names
// of dtypes and operators. A tensor on meta, which has no elements, shows its sizes:
//
//   tensor([[1., 2.],
//           [3., 4.]], dtype=f64, grad_fn=<mul>)
//   tensor(..., device='meta', size=(2, 2))

#include <ostream>

#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/print.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "tensor(undefined)";
  constexpr std::string_view kPrefix = "tensor(";
  std::vector<std::string> suffixes;
  if (x.device() != default_device()) suffixes.push_back(fmt::format("device='{}'", x.device()));
  if (const bool on_meta = x.device().is_meta(); on_meta || x.numel() == 0) {
    // Without elements neither shape nor dtype can be seen.
    if (x.dim() != 1 || on_meta) {
      std::string sizes;
      for (const int64_t size : x.sizes()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
      suffixes.push_back("size=(" + sizes + ")");
    }
    if (x.dtype() != kF32) suffixes.push_back(fmt::format("dtype={}", x.dtype()));
  } else if (x.dtype() != kF32 && x.dtype() != kI64 && x.dtype() != kBool) {
    suffixes.push_back(fmt::format("dtype={}", x.dtype()));
  }
  if (const char* made_by = door::made_by(x)) {
    suffixes.push_back(fmt::format("grad_fn=<{}>", made_by));
  } else if (x.requires_grad()) {
    suffixes.push_back("requires_grad=True");
  }

  std::string text = std::string(kPrefix);
  text += x.device().is_meta() ? "..." : values_text(x, static_cast<int>(kPrefix.size()));
  // PyTorch counts one column more than the last line has, or two when it is the only one; lines must break where its
  // lines do.
  const size_t line_end = text.rfind('\n');
  size_t column = line_end == std::string::npos ? text.size() + 2 : text.size() - line_end + 1;
  for (const std::string& suffix : suffixes) {
    if (column + suffix.size() + 2 > static_cast<size_t>(kPrintWidth)) {
      text += ",\n" + std::string(kPrefix.size(), ' ') + suffix;
      column = kPrefix.size() + suffix.size();
    } else {
      text += ", " + suffix;
      column += suffix.size() + 2;
    }
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace lorry
