#pragma once

// cuBLASLt, opened when a product first asks for it: a program that multiplies nothing does without its half gigabyte,
// and a machine without it runs everything else.

#include <cublasLt.h>

namespace lorry::kernels::cuda {

/// What Lorry calls. Descriptors are initialised in place, so nothing has to be destroyed.
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

/// Throws DeviceError that names the library and says what the loader said.
const CublasLt& cublas_lt();
/// The library's handle for a device; any thread may use it.
cublasLtHandle_t cublas_lt_handle(int device);
/// Throws CudaError unless the call succeeded.
void check_cublas_lt(cublasStatus_t status, const char* call);

}  // namespace lorry::kernels::cuda
