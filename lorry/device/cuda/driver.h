#pragma once

// Functions of the driver, which Lorry does not link, so that a build with CUDA also starts without one.

namespace lorry::cuda {

namespace detail {
void* driver_function(const char* name, unsigned version);
}

/// Looks up the form of a function that the driver had in this version of CUDA. Throws CudaError if it has none.
template <class F>
void find_driver(F*& function, const char* name, unsigned version = 12000) {
  function = reinterpret_cast<F*>(detail::driver_function(name, version));
}

}  // namespace lorry::cuda
