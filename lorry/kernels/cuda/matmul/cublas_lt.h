#pragma once

// cuBLASLt, opened at the first product that needs it: a program without such products does not load its half gigabyte,
// and a machine without the library can run everything else.

#include <cublasLt.h>

namespace lorry::kernels::cuda {

/// The functions that Lorry calls. Descriptors are initialised in place, so nothing has to be destroyed.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmulDescInit_internal) operation_init;
  decltype(&cublasLtMatmulDescSetAttribute) operation_set;
  decltype(&cublasLtMatrixLayoutInit_internal) layout_init;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceInit_internal) preference_init;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};

/// Throws DeviceError with the library's name and the loader's message.
const CublasLt& cublas_lt();
/// The library's handle for a device. Thread-safe.
cublasLtHandle_t cublas_lt_handle(int device);
/// Throws CudaError unless the call succeeded.
void check_cublas_lt(cublasStatus_t status, const char* call);

}  // namespace lorry::kernels::cuda
