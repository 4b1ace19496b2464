// The in-place forms of views, which give the tensor itself other sizes and strides.

#include "lorry/base/modes.h"
#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/views.h"
#include "lorry/tensor/changes.h"

namespace lorry {
namespace {

/// Gives x the layout of the view, which has x's elements and starts where x does. A graph that saved x would read it
/// by the new strides, so this counts as a write, which the graph notices. Recorded as `op`, the view's operator, in
/// place.
template <class MakeView, class... A>
const Tensor& restride(Op op, const Tensor& x, MakeView&& make_view, const A&... attributes) {
  require_defined(x, "self");
  door::require_not_inference(x);
  require<GradError>(!x.requires_grad() || mode(kGradMode),
                     "a tensor that requires gradients changes its sizes while none are recorded; got {}; use the "
                     "form that returns a view",
                     x);
  const auto change = [&] {
    const ModeScope quiet(0, kGradMode);
    const Tensor view = make_view();
    x.node()->layout = view.layout();
    x.node()->contiguous = view.is_contiguous();
    note_reshaped();
    x.storage().written_by(t_operator);
  };
  if (!door::heard({&x})) {
    change();
    return x;
  }
  const std::array<door::Attribute, sizeof...(A)> list{door::attribute(attributes)...};
  door::Announced announced(op, true, {}, &x, list);
  change();
  announced.finish(x);
  return x;
}

/// A restride whose view has x's elements in the same order.
template <class MakeView>
const Tensor& reshaped(const Tensor& x, MakeView&& make_view) {
  return restride(Op::view, x, make_view, [&] {
    const ModeScope quiet(0, kListenerModes);
    return make_view().sizes();
  });
}

}  // namespace

const Tensor& view_in_place(const Tensor& x, const Dims& sizes) {
  const Running running("view_in_place");
  return reshaped(x, [&] { return x.view(sizes); });
}

const Tensor& Tensor::squeeze_() const {
  const Running running("squeeze");
  return reshaped(*this, [&] { return squeeze(); });
}
const Tensor& Tensor::squeeze_(int64_t dim) const {
  const Running running("squeeze");
  return reshaped(*this, [&] { return squeeze(dim); });
}
const Tensor& Tensor::unsqueeze_(int64_t dim) const {
  const Running running("unsqueeze");
  return reshaped(*this, [&] { return unsqueeze(dim); });
}
const Tensor& Tensor::transpose_(int64_t dim0, int64_t dim1) const {
  const Running running("transpose");
  return restride(
      Op::transpose, *this, [&] { return transpose(dim0, dim1); }, dim0, dim1);
}
const Tensor& Tensor::t_() const {
  const Running running("t");
  if (!defined() || dim() != 2) return reshaped(*this, [&] { return t(); });
  return restride(
      Op::transpose, *this, [&] { return t(); }, int64_t{0}, int64_t{1});
}

}  // namespace lorry
