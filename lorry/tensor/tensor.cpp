#include "lorry/tensor/tensor.h"

#include "lorry/base/modes.h"

namespace lorry {
namespace {
constinit thread_local Device t_default_device{};
}

void detail::raise_undefined(const char* method) {
  raise<ValueError>("{}: the tensor is undefined; expected a tensor", t_operator == nullptr ? method : t_operator);
}

Device default_device() { return t_default_device; }
void set_default_device(Device device) {
  require<DeviceError>(static_cast<int>(device.type) < kDeviceTypeCount,
                       "set_default_device: no such type of device; got number {}; expected cpu or cuda",
                       static_cast<int>(device.type));
  t_default_device = device;
}

int64_t Tensor::size(int64_t dim) const {
  const Layout& layout = checked("size").layout;
  const int d = wrap_dim(dim, layout.rank, "size");
  require<IndexError>(layout.rank > 0, "size: dimension out of range; got dim {} of a tensor of rank 0", dim);
  return layout.sizes[d];
}

int64_t Tensor::stride(int64_t dim) const {
  const Layout& layout = checked("stride").layout;
  const int d = wrap_dim(dim, layout.rank, "stride");
  require<IndexError>(layout.rank > 0, "stride: dimension out of range; got dim {} of a tensor of rank 0", dim);
  return layout.strides[d];
}

Tensor Tensor::detach() const {
  const TensorNode& from = checked("detach");
  auto node = make_counted<TensorNode>(from.storage, from.layout, from.offset, from.dtype);
  node->inference = from.inference;
  return Tensor(std::move(node));
}

std::string describe(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{} {} {}", x.sizes(), x.dtype(), x.device());
}

}  // namespace lorry
