#include "lorry/kernels/cuda/matmul/cublas_lt.h"

#include <dlfcn.h>

#include <mutex>

#include "lorry/base/error.h"
#include "lorry/device/cuda/library.h"
#include "lorry/device/cuda/runtime.h"

namespace lorry::kernels::cuda {
namespace {

#define LORRY_TEXT(x) #x
#define LORRY_SONAME(major) "libcublasLt.so." LORRY_TEXT(major)
/// Only the major version of the header that this was compiled with: descriptors and enumerations differ between
/// versions.
constexpr const char* kName = LORRY_SONAME(CUBLAS_VER_MAJOR);
#undef LORRY_SONAME
#undef LORRY_TEXT

void* open_library() {
  const auto [library, why] = lorry::cuda::open_library(kName);
  require<DeviceError>(library != nullptr,
                       "products on cuda need cuBLASLt, which cannot be opened; got '{}'; expected {} among the "
                       "loader's libraries or in {}; "
                       "install CUDA's cuBLAS {}, or name its folder in LD_LIBRARY_PATH",
                       why, kName, lorry::cuda::library_folder(), CUBLAS_VER_MAJOR);
  return library;
}

CublasLt load() {
  void* const library = open_library();
  const auto find = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    require<DeviceError>(function != nullptr, "{} has no function {}; expected the library of CUDA {}", kName, name,
                         CUBLAS_VER_MAJOR);
  };
  CublasLt lt;
  find(lt.create, "cublasLtCreate");
  find(lt.version, "cublasLtGetVersion");
  find(lt.status_string, "cublasLtGetStatusString");
  find(lt.operation_init, "cublasLtMatmulDescInit_internal");
  find(lt.operation_set, "cublasLtMatmulDescSetAttribute");
  find(lt.layout_init, "cublasLtMatrixLayoutInit_internal");
  find(lt.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(lt.preference_init, "cublasLtMatmulPreferenceInit_internal");
  find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.matmul, "cublasLtMatmul");
  return lt;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt kLibrary = load();  // if this throws, the next call tries again
  return kLibrary;
}

cublasLtHandle_t cublas_lt_handle(int device) {
  static std::once_flag once[kMaxDevices];
  static cublasLtHandle_t handles[kMaxDevices];  // never destroyed: at exit the context may no longer exist
  std::call_once(once[device], [device] {
    const lorry::cuda::DeviceGuard guard(device);
    check_cublas_lt(cublas_lt().create(&handles[device]), "cublasLtCreate");
  });
  return handles[device];
}

void check_cublas_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  lorry::cuda::check(cudaGetLastError(), call);  // a fault of the device is the more useful error
  raise<CudaError>("{} failed: {} (cuBLASLt {})", call, cublas_lt().status_string(status), cublas_lt().version());
}

}  // namespace lorry::kernels::cuda
