#include "lorry/tensor/tensor.h"

#include "lorry/base/modes.h"
#include "lorry/device/capture.h"
#include "lorry/device/cpu/calls.h"
#include "lorry/memory/lease.h"
#include "lorry/tensor/facts.h"

namespace lorry {
namespace {
constinit thread_local Device t_default_device{};
}

void detail::raise_undefined(const char* method) {
  raise_as<ValueError>(running_or(method), "the tensor is undefined; expected a tensor");
}

Device default_device() { return t_default_device; }
void set_default_device(Device device) {
  require<DeviceError>(static_cast<int>(device.type) < kDeviceTypeCount,
                       "set_default_device: no such type of device; got number {}; expected cpu, cuda or meta",
                       static_cast<int>(device.type));
  t_default_device = device;
}

namespace {
/// Maps -rank..rank-1 to 0..rank-1. A tensor of rank 0 has none.
int existing_dim(int64_t dim, int rank, const char* method) {
  if (dim >= -rank && dim < rank) [[likely]]
    return static_cast<int>(dim < 0 ? dim + rank : dim);
  if (rank == 0) raise_as<IndexError>(running_or(method), "a tensor of rank 0 has no dimensions; got dim {}", dim);
  raise_as<IndexError>(running_or(method), "dimension out of range; got dim {} of a tensor of rank {}; expected {}",
                       dim, rank, IndexRange{-rank, rank});
}
}  // namespace

int64_t Tensor::size(int64_t dim) const {
  const Layout& layout = checked("size").layout;
  const int d = existing_dim(dim, layout.rank, "size");
  if (detail::sizes_heard()) [[unlikely]]
    detail::announce_sizes(*this, d);
  return layout.sizes[d];
}

int64_t Tensor::stride(int64_t dim) const {
  const Layout& layout = with_sizes("stride").layout;
  return layout.strides[existing_dim(dim, layout.rank, "stride")];
}

Tensor Tensor::detach() const {
  const detail::TensorNode& from = checked("detach");
  auto node = make_counted<detail::TensorNode>(from.storage, from.layout, from.offset, from.dtype);
  node->inference = from.inference;
  node->wrapped_number = from.wrapped_number;  // because the tape saves wrapped numbers detached
  Tensor result(std::move(node));
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact({.fact = Fact::alias, .storage = from.storage->id(), .tensor = &result});
  return result;
}

void detail::note_host_write(const Tensor& x) {
  if (!device::is_captured()) return;
  const Storage& memory = x.storage();
  if (!x.device().is_cpu() || !memory::is_in_current_pool(kCPU, memory.data())) return;
  if (cpu::Calls* const calls = cpu::recorded_calls())
    calls->note_host_write(memory.data(), memory.bytes());
  else if (t_host_written != nullptr)
    t_host_written->push_back(x);
}

void detail::announce_address(const Tensor& x) {
  if (mode(kAddressMode) && t_operator == nullptr) note_host_write(x);  // an operator takes them for its own call
  if (facts_heard()) announce_fact({.fact = Fact::address, .storage = x.storage().id(), .tensor = &x});
}

void detail::announce_sizes(const Tensor& x, int dim) {
  if (t_operator != nullptr) return;  // an operator reads them for its own call
  announce_fact({.fact = Fact::sizes, .storage = x.node()->storage->id(), .tensor = &x, .dim = dim});
}

std::string describe(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{} {} {}", x.sizes(), x.dtype(), x.device());
}

}  // namespace lorry
