#include "lorry/tensor/dlpack.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "lorry/device/device.h"

namespace lorry::dlpack {
namespace {

DLDataType type_of(DType t) {
  constexpr DLDataTypeCode kCodes[] = {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) kDL##dlpack,
#include "lorry/layout/dtypes.def"
  };
  return {kCodes[static_cast<int>(t)], static_cast<uint8_t>(8 * size_of(t)), 1};
}

/// The names of all dtypes, each after ", ". A constant, because GCC 13 warns about an unrolled loop that formats them.
constexpr char kListed[] = ""
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) ", " text
#include "lorry/layout/dtypes.def"
    ;

DType dtype_from(DLDataType type) {
  require<DTypeError>(type.lanes == 1, "several lanes an element; got {} lanes; expected 1", type.lanes);
  for (const DType t : kDTypes) {
    const DLDataType ours = type_of(t);
    if (ours.code == type.code && ours.bits == type.bits) return t;
  }
  raise<DTypeError>("unsupported dtype; got type code {} with {} bits; expected one of {}", type.code, type.bits,
                    std::string_view(kListed).substr(2));
}

DLDevice device_of(Device device) {
  if (device.is_meta()) lorry::detail::raise_no_elements("to_dlpack");
  return {device.is_cpu() ? kDLCPU : kDLCUDA, device.index};
}

Device device_from(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned host memory
      return kCPU;
    case kDLCUDA:
    case kDLCUDAManaged:
      require<DeviceError>(device.device_id >= 0 && device.device_id <= INT8_MAX, "device number out of range; got {}",
                           device.device_id);
      return {DeviceType::cuda, static_cast<int8_t>(device.device_id)};
    default:
      raise<DeviceError>("unsupported device; got type {} number {}; expected a CPU or CUDA device", device.device_type,
                         device.device_id);
  }
}

/// The objects that an export refers to: the tensor, which keeps the memory alive, and the arrays of its description.
template <class Managed>
struct Export {
  Tensor tensor;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
  Managed managed;
};

template <class Managed>
Managed* hand_out(const Tensor& x) {
  require<ValueError>(x.defined(), "an undefined tensor cannot be exported");
  require<GradError>(!x.requires_grad(),
                     "a tensor that requires a gradient cannot be exported; got {}; detach it first", x);
  auto exported = std::make_unique<Export<Managed>>();
  const Layout& layout = x.layout();
  std::copy_n(layout.sizes, layout.rank, exported->shape);
  // Dimensions of size 1 and empty tensors may have any stride; some readers expect the row-major ones.
  const Layout row_major = Layout::contiguous(layout.size_list());
  for (int d = 0; d < layout.rank; ++d)
    exported->strides[d] = layout.sizes[d] <= 1 || x.numel() == 0 ? row_major.strides[d] : layout.strides[d];
  exported->tensor = x.detach();
  exported->managed = {};
  exported->managed.dl_tensor = {.data = x.data_ptr(),
                                 .device = device_of(x.device()),
                                 .ndim = layout.rank,
                                 .dtype = type_of(x.dtype()),
                                 .shape = exported->shape,
                                 .strides = exported->strides,
                                 .byte_offset = 0};
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](Managed* self) { delete static_cast<Export<Managed>*>(self->manager_ctx); };
  return &exported.release()->managed;
}

template <class Managed>
Tensor take_over(Managed* managed, bool read_only) {
  const DLTensor& t = managed->dl_tensor;
  require<ShapeError>(t.ndim >= 0 && t.ndim <= kMaxRank, "too many dimensions; got {}; expected at most {}", t.ndim,
                      kMaxRank);
  require<FormatError>(t.ndim == 0 || t.shape != nullptr, "sizes are missing; got a null shape for {} dimensions",
                       t.ndim);
  const DType dtype = dtype_from(t.dtype);
  const Device device = device_from(t.device);
  device::require_device(device, "from_dlpack");
  Dims sizes;
  for (int d = 0; d < t.ndim; ++d) sizes.push_back(t.shape[d]);
  Layout layout = Layout::contiguous(sizes);
  if (t.strides != nullptr && layout.numel() > 0) {
    int64_t last = 0;
    for (int d = 0; d < t.ndim; ++d) {
      int64_t reach = 0;
      require<ShapeError>(t.strides[d] >= 0 || sizes[d] == 1,
                          "negative stride; got {} in dimension {}; expected strides >= 0", t.strides[d], d);
      if (sizes[d] > 1) layout.strides[d] = t.strides[d];
      const bool overflow =
          __builtin_mul_overflow(sizes[d] - 1, layout.strides[d], &reach) || __builtin_add_overflow(last, reach, &last);
      require<ShapeError>(!overflow && last < INT64_MAX / 8, "strides reach beyond 64 bits; got {} in dimension {}",
                          t.strides[d], d);
    }
  }
  require<FormatError>(t.data != nullptr || layout.numel() == 0, "memory is missing; got a null address for sizes {}",
                       sizes);
  char* const first = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset;
  require<FormatError>(reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(size_of(dtype)) == 0,
                       "memory is not aligned for {}; got a byte offset of {}", dtype, t.byte_offset);
  // before the storage, which owns `managed` from then on
  auto node = make_counted<detail::TensorNode>(nullptr, layout, 0, dtype);
  node->storage = Storage::foreign(
      device, first, layout.extent() * size_of(dtype),
      [](void* context) {
        auto* const owner = static_cast<Managed*>(context);
        if (owner->deleter != nullptr) owner->deleter(owner);
      },
      managed, read_only);
  return Tensor(std::move(node));
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& x) {
  const Running running("to_dlpack");
  DLManagedTensorVersioned* const managed = hand_out<DLManagedTensorVersioned>(x);
  managed->version = {kMajorVersion, kMinorVersion};
  managed->flags = x.storage().read_only() ? kFlagReadOnly : 0;
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& x) {
  const Running running("to_dlpack");
  require<ValueError>(!x.defined() || !x.storage().read_only(),
                      "the older form has no read-only flag; got {}, which is read-only; clone it, or use to_dlpack",
                      x);
  return hand_out<DLManagedTensor>(x);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  const Running running("from_dlpack");
  require<ValueError>(managed != nullptr, "null pointer; expected a managed tensor");
  // Nothing but the version may be read before the version is checked: a new major version may move all other members.
  require<FormatError>(managed->version.major <= kMajorVersion,
                       "written for a newer version; got {}.{}; expected at most {}.x", managed->version.major,
                       managed->version.minor, kMajorVersion);
  // kFlagCopied is ignored: with or without a copy, Lorry may use the memory.
  return take_over(managed, (managed->flags & kFlagReadOnly) != 0);
}

Tensor from_dlpack(DLManagedTensor* managed) {
  const Running running("from_dlpack");
  require<ValueError>(managed != nullptr, "null pointer; expected a managed tensor");
  return take_over(managed, false);
}

}  // namespace lorry::dlpack
