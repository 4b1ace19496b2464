#include "lorry/ops/copy.h"

#include "lorry/base/events.h"
#include "lorry/base/waits.h"
#include "lorry/device/device.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/upload.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/pointwise_call.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

void copy_elements(const Tensor& to, const Tensor& from) {
  kernels::Array source = array(from);
  source.layout = expand(from.layout(), to.sizes());
  backend(to).copy->copy(array(to), source, current_stream(to.device()));
}

/// A tensor of another device with the elements and, where x is dense, the strides of x. Work enqueued before on either
/// side comes before. A host that receives waits, and so does one whose pinned memory is read, unless `non_blocking`.
/// Other host memory has been read on return.
Tensor transferred(const Tensor& x, Device device, bool non_blocking) {
  const bool dense = x.layout().is_dense();
  if (device.is_meta()) {  // nothing is read
    const Layout layout = dense ? x.layout() : Layout::contiguous(x.sizes());
    auto memory = Storage::allocate(device, x.nbytes());
    return Tensor(make_counted<detail::TensorNode>(std::move(memory), layout, 0, x.dtype()));
  }
  const waits::Wait wait = device.is_cpu() ? waits::Wait::to_host : waits::Wait::from_host;
  const waits::Reason reason(wait);
  if (!non_blocking && (device.is_cpu() || (dense && x.is_pinned()))) waits::expect(wait);
  if (!dense)
    events::emit(events::Kind::hidden_copy, "to",
                 x.is_pinned() ? "a pinned source that is not dense becomes a pageable copy"
                               : "a source that is not dense is copied first");
  const Tensor from = dense ? x : x.contiguous();
  auto memory = device.is_cpu() && non_blocking ? Storage::allocate_pinned(from.nbytes())
                                                : Storage::allocate(device, from.nbytes());
  const Tensor to(make_counted<detail::TensorNode>(std::move(memory), from.layout(), 0, from.dtype()));
  const Stream stream = current_stream(device.is_cpu() ? x.device() : device);
  const bool between_gpus = !device.is_cpu() && !x.device().is_cpu();
  if (between_gpus) {
    const Event made(x.device());
    made.record(current_stream(x.device()));
    made.block(stream);
  }
  for (const Tensor& t : {from, to})  // before the copy is enqueued: nothing may fail in between
    if (t.is_pinned()) memory::record_pinned(t.storage().data(), stream);
  const auto copy = [&] { device::copy(to.data_ptr(), device, from.data_ptr(), x.device(), from.nbytes(), stream); };
  if (from.device().is_cpu() && !from.is_pinned()) {
    memory::upload(to.data_ptr(), device, from.data_ptr(), from.nbytes(), stream);
  } else if (device.is_cpu() && x.device().is_cuda() && !non_blocking) {
    // The driver waits in a copy to pageable memory already: that and the rest are one wait.
    const waits::Deferred one_wait;
    waits::around("the host waited for a copy to it", copy);
    stream.synchronize();
  } else {
    copy();
  }
  if (between_gpus) {
    const Event read(device);  // the source's memory may be used again only after it was read
    read.record(stream);
    read.block(current_stream(x.device()));
  }
  if (!non_blocking && from.is_pinned() && !device.is_cpu()) stream.synchronize();
  return to;
}

/// Every element becomes the number, or the value of the 0-d tensor.
void fill_elements(const Tensor& to, const Operand& value) {
  const kernels::CopyKernels& kernels = *backend(to).copy;
  const Stream stream = current_stream(to.device());
  if (value.tensor() != nullptr) return copy_elements(to, value.tensor()->to(to.device()));
  if (value.scalar().is_floating()) {
    const double number = value.scalar().to<double>();
    kernels.fill(array(to), &number, kF64, stream);
  } else {
    const int64_t number = value.scalar().to<int64_t>();
    kernels.fill(array(to), &number, kI64, stream);
  }
}

}  // namespace

const Tensor& Tensor::operator=(const Tensor& source) && {
  const Running running("assignment");
  ops::require_reachable(*this);
  return copy_(source);
}
const Tensor& Tensor::operator=(const Scalar& value) && {
  const Running running("assignment");
  ops::require_reachable(*this);
  return fill_(value);
}

Tensor Tensor::to(DType dtype) const {
  const Running running("to");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  if (dtype == this->dtype()) return *this;
  require_dtype(dtype);
  return door::call(
      Op::cast, {this},
      [&] {
        const Tensor out = empty_like(*this, dtype);
        copy_elements(out, *this);
        return out;
      },
      dtype);
}

Tensor Tensor::to(Device device, bool non_blocking) const {
  const Running running("to");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  if (device == this->device()) return *this;
  device::require_device(device, "to");
  if (this->device().is_meta()) detail::raise_no_elements("to");
  return door::call(
      Op::transfer, {this}, [&] { return transferred(*this, device, non_blocking); }, device, non_blocking);
}

Tensor Tensor::cuda(int index) const {
  const Running running("cuda");
  require<DeviceError>(index >= 0 && index < kMaxDevices, "device number out of range; got {}; expected 0 to {}", index,
                       kMaxDevices - 1);
  return to(Device{DeviceType::cuda, static_cast<int8_t>(index)});
}

Tensor Tensor::pin_memory() const {
  const Running running("pin_memory");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  require<DeviceError>(device().is_cpu(), "only host memory is pinned; got {}; copy it with to(kCPU) first", *this);
  if (is_pinned()) return *this;
  const ModeScope quiet(0, kGradMode);
  return empty_pinned(sizes(), dtype()).copy_(detach());
}

void Tensor::record_stream(Stream stream) const {
  const Running running("record_stream");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  if (is_pinned() && stream.device.is_cuda()) {
    device::require_device(stream.device, "record_stream");
    return memory::record_pinned(storage().data(), stream);
  }
  require<DeviceError>(stream.device == device(), "the stream is on another device; got {} for {}", stream.device,
                       *this);
  (is_managed() ? memory::record_managed : memory::record_stream)(device(), storage().data(), stream);
}

Tensor clone(const Tensor& x) {
  const Running running("clone");
  require<ValueError>(x.defined(), "the tensor is undefined; expected a tensor");
  return door::call(
      Op::clone, {&x},
      [&] {
        const Tensor out = empty_like(x);
        copy_elements(out, x);
        return out;
      },
      false);
}
Tensor Tensor::clone() const { return lorry::clone(*this); }

Tensor contiguous(const Tensor& x) {
  const Running running("contiguous");
  require<ValueError>(x.defined(), "the tensor is undefined; expected a tensor");
  if (x.is_contiguous()) return x;
  return door::call(
      Op::clone, {&x},
      [&] {
        const Tensor out = empty(x.sizes(), x.options());
        copy_elements(out, x);
        return out;
      },
      true);
}
Tensor Tensor::contiguous() const { return lorry::contiguous(*this); }

const Tensor& Tensor::copy_(const Tensor& source) const {
  const Running running("copy");
  require<ValueError>(defined() && source.defined(), "a tensor is undefined; expected two tensors");
  if (source.device() != device()) return copy_(source.to(device()));
  return door::call_in_place(Op::copy, *this, {&source}, [&] {
    const Layout from = lorry::expand(source.layout(), sizes());
    const ops::OperandOverlap how =
        source.numel() == numel() ? ops::operand_overlap(*this, source)
                                  : ops::operand_overlap(*this, door::make_view(source, from, source.storage_offset()));
    if (how == ops::OperandOverlap::same) return;
    require<ShapeError>(how != ops::OperandOverlap::partial,
                        "the source shares part of the memory that is written; got {} and {}; expected the same "
                        "elements or none; clone the source first",
                        *this, source);
    if (how == ops::OperandOverlap::unknown) {
      events::emit(events::Kind::hidden_copy, "copy_", "the source lies among the elements that are written");
      return copy_elements(*this, source.clone());
    }
    copy_elements(*this, source);
  });
}

const Tensor& Tensor::fill_(const Operand& value) const {
  const Running running("fill");
  require<ValueError>(defined() && (value.tensor() == nullptr || value.tensor()->defined()),
                      "a tensor is undefined; expected a tensor");
  require<ShapeError>(value.tensor() == nullptr || value.tensor()->dim() == 0,
                      "the value has dimensions; got {}; expected a number or a 0-d tensor",
                      value.tensor() != nullptr ? *value.tensor() : *this);
  if (!is_contiguous()) {
    if (const Tensor distinct = without_repeats(*this); !distinct.is_same(*this)) {
      distinct.fill_(value);
      return *this;
    }
  }
  return door::call_in_place(Op::fill, *this, {value}, [&] {
    // A value among the elements is read before they are written.
    if (value.tensor() != nullptr && ops::operand_overlap(*this, *value.tensor()) != ops::OperandOverlap::none)
      return fill_elements(*this, value.tensor()->clone());
    fill_elements(*this, value);
  });
}

Tensor without_repeats(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor distinct = x;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (x.layout().strides[d] == 0 && x.layout().sizes[d] > 1) distinct = narrow(distinct, d, 0, 1);
  return distinct;
}

const Tensor& Tensor::zero_() const {
  const Running running("zero");
  return fill_(0);
}

Scalar Tensor::item() const {
  const Running running("item");
  require<ShapeError>(checked("item").numel == 1, "not a single element; got {}; expected a tensor of one element",
                      *this);
  announce_host_read(*this, waits::Wait::value);
  const ModeScope quiet(0, kListenerModes);
  const waits::Reason reason(device().is_cuda() ? waits::Wait::value : waits::Wait::none);
  const Tensor host = to(kCPU);  // waits for the device
  if (is_floating(dtype())) return *static_cast<const double*>(host.to(kF64).data_ptr());
  if (dtype() == kBool) return *static_cast<const uint8_t*>(host.data_ptr()) != 0;
  return *static_cast<const int64_t*>(host.to(kI64).data_ptr());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Running running("to_vector");
  require<ValueError>(defined(), "the tensor is undefined; expected a tensor");
  announce_host_read(*this, waits::Wait::elements);
  const ModeScope quiet(0, kListenerModes);
  const waits::Reason reason(waits::Wait::elements);
  const Tensor row_major = to(kCPU).to(dtype_of<T>).contiguous();
  // memory from elsewhere may hold any byte as true
  using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  const Stored* first = static_cast<const Stored*>(row_major.data_ptr());
  return std::vector<T>(first, first + numel());
}
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) template std::vector<type> Tensor::to_vector() const;
#include "lorry/layout/dtypes.def"

}  // namespace lorry
