#pragma once

// Functions of the driver, which Lorry does not link, so that a build with CUDA also starts without one.

namespace lorry::cuda {

namespace detail {
void* driver_function(const char* name, unsigned version);
void* driver_function_if_any(const char* name, unsigned version);
}  // namespace detail

/// Looks up the form of a function that the driver had in this version of CUDA. Throws CudaError if it has none.
template <class F>
void find_driver(F*& function, const char* name, unsigned version = 12000) {
  function = reinterpret_cast<F*>(detail::driver_function(name, version));
}

/// The same for a function that newer drivers have; null without it.
template <class F>
void find_driver_if_any(F*& function, const char* name, unsigned version) {
  function = reinterpret_cast<F*>(detail::driver_function_if_any(name, version));
}

}  // namespace lorry::cuda
