#pragma once

// DLPack: the ABI with which array libraries exchange tensors without copying (https://dmlc.github.io/dlpack, version
// 1.x). The structures are fixed by the specification. They are declared here because a distribution's header may be
// older than version 1.
//
// Lorry exports and imports both forms, versioned and unversioned. An exported tensor keeps its memory alive until the
// receiver calls the deleter. An imported tensor calls the producer's deleter once, when its last view is released.
// Memory marked read-only is shared too; in-place operators refuse to write it.

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
  uint16_t lanes;  ///< elements packed into one; 1 for all of Lorry's types
};

struct DLTensor {
  void* data;  ///< start of the memory; the first element is at byte_offset
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
  void* manager_ctx;                       ///< private to the producer
  void (*deleter)(DLManagedTensor* self);  ///< called once by the consumer; may be null
};

struct DLPackVersion {
  uint32_t major;  ///< versions with different numbers have different layouts after the deleter
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

/// Exports a tensor. The receiver owns the result and calls its deleter. Throws GradError for a tensor that requires a
/// gradient, because autograd cannot track the receiver; detach it first. The older form has no read-only flag, so it
/// throws ValueError for read-only memory.
DLManagedTensorVersioned* to_dlpack(const Tensor& x);
/// The same in the older form, for receivers from before version 1.
DLManagedTensor* to_dlpack_unversioned(const Tensor& x);

/// Imports a tensor without a copy. On success the result owns `managed`; if this throws, the caller still owns it.
/// Throws FormatError for a newer major version and for contradictory fields; DTypeError, DeviceError and ShapeError
/// for tensors that Lorry does not support (complex numbers, several lanes, negative strides, more than 8 dimensions).
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace lorry::dlpack
