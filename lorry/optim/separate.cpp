#include "lorry/optim/separate.h"

#include <algorithm>

namespace lorry::optim {

std::optional<Clash> find_clash(std::span<const Tensor> tensors) {
  struct Span {
    const char *begin, *end;
    size_t of;
  };
  std::vector<Span> spans;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    if (!x.defined() || x.numel() == 0) continue;
    const auto* begin = static_cast<const char*>(x.data_ptr());
    spans.push_back({begin, begin + x.layout().extent() * size_of(x.dtype()), i});
  }
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> open;  // those that reach over the beginning of the next
  for (const Span& span : spans) {
    std::erase_if(open, [&](const Span& before) { return before.end <= span.begin; });
    for (const Span& before : open) {
      const Tensor &a = tensors[before.of], &b = tensors[span.of];
      const Sharing sharing =
          share_elements(a.data_ptr(), a.layout(), size_of(a.dtype()), b.data_ptr(), b.layout(), size_of(b.dtype()));
      if (sharing != Sharing::no)
        return Clash{std::min(before.of, span.of), std::max(before.of, span.of), sharing == Sharing::yes};
    }
    open.push_back(span);
  }
  return {};
}

}  // namespace lorry::optim
