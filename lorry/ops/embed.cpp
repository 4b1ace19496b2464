#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/index_support.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/views.h"

namespace lorry {

Tensor embed(const Tensor& source, const Dims& sizes, const View& view) {
  const Running running("embed");
  require_defined(source, "source");
  require<ShapeError>(source.sizes() == view.layout.size_list(),
                      "source does not have the view's sizes; got {} for sizes {}", source, view.layout.size_list());
  return door::call(
      Op::embed, {&source},
      [&] {
        const Tensor out = zeros(sizes, source.options());
        if (source.numel() == 0) return out;
        if (!view.layout.has_internal_overlap()) {
          out.as_strided(view.layout.size_list(), view.layout.stride_list(), view.offset).copy_(source);
          return out;
        }
        // Elements that the view repeats: every position of the view is one index into the flat result.
        const Tensor flat = arange(view.offset + view.layout.extent(), {kI64, source.device()})
                                .as_strided(view.layout.size_list(), view.layout.stride_list(), view.offset);
        Layout still = view.layout;
        for (int d = 0; d < still.rank; ++d) still.strides[d] = 0;
        backend(source).indexing->put({.target = indexing::restrided(out, still),
                                       .source = array(source),
                                       .index = array(flat),
                                       .size = out.numel(),
                                       .step = 1,
                                       .combine = kernels::Combine::add},
                                      current_stream(source.device()));
        return out;
      },
      sizes, view.layout.size_list(), view.layout.stride_list(), view.offset);
}

}  // namespace lorry
