#include "lorry/tensor/tensor.h"

namespace lorry {
namespace {
constinit thread_local Device t_default_device{};
}

Device default_device() { return t_default_device; }
void set_default_device(Device device) { t_default_device = device; }

int64_t Tensor::size(int64_t dim) const {
  const int d = wrap_dim(dim, node_->layout.rank, "size");
  require<IndexError>(node_->layout.rank > 0, "size: dimension out of range; got dim {} of a tensor of rank 0", dim);
  return node_->layout.sizes[d];
}

int64_t Tensor::stride(int64_t dim) const {
  const int d = wrap_dim(dim, node_->layout.rank, "stride");
  require<IndexError>(node_->layout.rank > 0, "stride: dimension out of range; got dim {} of a tensor of rank 0", dim);
  return node_->layout.strides[d];
}

Tensor Tensor::detach() const {
  auto node = make_counted<TensorNode>(node_->storage, node_->layout, node_->offset, node_->dtype);
  node->inference = node_->inference;
  return Tensor(std::move(node));
}

std::string describe(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{} {} {}", x.sizes(), x.dtype(), x.device());
}

}  // namespace lorry
