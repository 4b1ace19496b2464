#include "lorry/ops/rotary.h"

#include "lorry/base/events.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry {
namespace {

void check(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  require_defined(x, "x");
  require<DTypeError>(is_floating(x.dtype()), "x is not floating; got {}; expected one of {}", x, kFloatingNames);
  require<ShapeError>(x.dim() >= 3, "x has too few dimensions; got {}; expected [..., t, heads, d]", x);
  require<ShapeError>(x.size(-1) % 2 == 0,
                      "the coordinates of a head make no pairs; got {}; expected an even last size", x);
  const DType dtype = x.dtype() == kF64 ? kF64 : kF32;
  const Dims sizes = {x.size(-3), x.size(-1) / 2};
  for (const auto& [table, what] : {std::pair{&cos, "cos"}, {&sin, "sin"}}) {
    require_defined(*table, what);
    require_same_device(x, *table);
    require<ShapeError>(table->sizes() == sizes,
                        "{} does not fit x; got {} for x: {}; expected [t, d / 2], which is {}", what, *table, x,
                        sizes);
    require<DTypeError>(table->dtype() == dtype, "{} has another dtype; got {} for x: {}; expected {}", what, *table, x,
                        dtype);
    require<GradError>(!(mode(kGradMode) && table->requires_grad()),
                       "{} requires a gradient, and tables get none; got {}; pass {}.detach()", what, *table, what);
  }
}

/// x as [n, t, h, d] with a last stride of 1: where it lies, or a copy.
kernels::Array rows(const Tensor& x, Tensor& copy) {
  const int64_t t = x.size(-3), h = x.size(-2), d = x.size(-1);
  const Dims sizes = {x.numel() / (t * h * d), t, h, d};
  Layout layout;
  if (x.stride(-1) == 1 && view_as(x.layout(), sizes, layout)) return {x.data_ptr(), x.dtype(), layout};
  events::emit(events::Kind::hidden_copy, t_operator,
               "the heads of x are not contiguous, or its leading dimensions several strides");
  copy = x.contiguous();
  return {copy.data_ptr(), x.dtype(), Layout::contiguous(sizes)};
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, std::optional<int64_t> rotated_heads,
              bool inverse) {
  const Running running("rotary");
  check(x, cos, sin);
  const int64_t heads = rotated_heads.value_or(x.size(-2));
  require<ValueError>(heads >= 0 && heads <= x.size(-2), "heads out of range; got {} for x: {}; expected 0 to {}",
                      heads, x, x.size(-2));
  return door::call(
      Op::rotary, {&x, &cos, &sin},
      [&] {
        const Tensor out = empty(x.sizes(), x.options());
        if (x.numel() == 0) return out;
        Tensor copy;
        const kernels::Array from = rows(x, copy);
        const Tensor dense_cos = cos.contiguous(), dense_sin = sin.contiguous();
        backend(x).rotary->rotary({{out.data_ptr(), out.dtype(), Layout::contiguous(from.layout.size_list())},
                                   from,
                                   array(dense_cos),
                                   array(dense_sin),
                                   heads,
                                   inverse},
                                  current_stream(x.device()));
        return out;
      },
      heads, inverse);
}

}  // namespace lorry
