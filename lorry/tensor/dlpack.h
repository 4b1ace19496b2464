#pragma once

// DLPack: the ABI by which array libraries hand each other tensors without copying (https://dmlc.github.io/dlpack,
// version 1.x). The structures are declared here because a distribution's header may predate version 1; they are fixed
// by the specification.
//
// Lorry exports both forms and imports both. A tensor handed out keeps its memory alive until the receiver calls the
// deleter; a tensor taken in calls the producer's deleter once, when its last view is gone. Memory marked read-only is
// shared, and every in-place operator refuses to write it.

#include <cstdint>

#include "lorry/tensor/tensor.h"

namespace lorry::dlpack {

inline constexpr uint32_t kMajorVersion = 1;  ///< a reader must refuse a larger one
inline constexpr uint32_t kMinorVersion = 0;

enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
enum DLDataTypeCode : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;    ///< DLDataTypeCode
  uint8_t bits;    ///< of one lane
  uint16_t lanes;  ///< elements packed into one; 1 for every type that Lorry has
};

struct DLTensor {
  void* data;  ///< start of the memory; the first element is byte_offset further
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; null means row-major
  uint64_t byte_offset;
};

/// The older form: no version, no flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;                       ///< the producer's own
  void (*deleter)(DLManagedTensor* self);  ///< called once by the consumer; may be null
};

struct DLPackVersion {
  uint32_t major;  ///< a change of it breaks the layout of everything after the deleter
  uint32_t minor;
};

inline constexpr uint64_t kFlagReadOnly = 1u << 0;  ///< the consumer must not write
inline constexpr uint64_t kFlagCopied = 1u << 1;    ///< the producer made a copy for this export

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

/// Hands out a tensor; the receiver owns the result and calls its deleter. Throws GradError for a tensor that requires
/// a gradient (detach it first), as the receiver could not be followed. The older form cannot say read-only, so it
/// refuses such memory with ValueError.
DLManagedTensorVersioned* to_dlpack(const Tensor& x);
/// The same in the older form, for receivers from before version 1.
DLManagedTensor* to_dlpack_unversioned(const Tensor& x);

/// Takes a tensor over, without a copy. On success the result owns `managed`; when it throws, `managed` stays the
/// caller's. Throws FormatError for a newer major version and for contradictory fields, DTypeError, DeviceError and
/// ShapeError for what Lorry does not have (complex numbers, several lanes, negative strides, more than 8 dimensions).
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace lorry::dlpack
