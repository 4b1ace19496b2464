// The in-place forms of views, which give the tensor itself other sizes and strides.

#include "lorry/base/modes.h"
#include "lorry/ops/array.h"
#include "lorry/ops/views.h"
#include "lorry/tensor/changes.h"

namespace lorry {
namespace {

/// Gives x the layout of the view, which has x's elements and starts where x does. A graph that saved x would read it by the new
/// strides, so this counts as a write, which the graph notices.
template <class MakeView>
const Tensor& restride(const Tensor& x, const char* where, MakeView&& make_view) {
  require_defined(x, where, "self");
  require<GradError>(!x.requires_grad(), "{}: the sizes of a tensor that requires gradients do not change in place; got {}; use the form that returns a view",
                     where, x);
  const ModeScope quiet(0, kGradMode);
  const Tensor view = make_view();
  x.node()->layout = view.layout();
  x.node()->contiguous = view.is_contiguous();
  note_reshaped();
  x.storage().written_by(where);
  return x;
}

}  // namespace

const Tensor& Tensor::squeeze_() const {
  return restride(*this, "squeeze_", [&] { return squeeze(); });
}
const Tensor& Tensor::squeeze_(int64_t dim) const {
  return restride(*this, "squeeze_", [&] { return squeeze(dim); });
}
const Tensor& Tensor::unsqueeze_(int64_t dim) const {
  return restride(*this, "unsqueeze_", [&] { return unsqueeze(dim); });
}
const Tensor& Tensor::transpose_(int64_t dim0, int64_t dim1) const {
  return restride(*this, "transpose_", [&] { return transpose(dim0, dim1); });
}
const Tensor& Tensor::t_() const {
  return restride(*this, "t_", [&] { return t(); });
}

}  // namespace lorry
