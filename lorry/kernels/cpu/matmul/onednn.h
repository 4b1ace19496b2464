#pragma once

// Calls of oneDNN while the process ends. oneDNN's compiled kernels and caches are static objects and are destroyed
// with all others, while static objects and detached threads of the program may still compute. So every call registers
// first. At the end of the process, before oneDNN's destructors run, oneDNN is closed: running calls are waited for,
// and new ones are refused; a refused call uses one of Lorry's own kernels.

#include <cstdint>

namespace lorry::kernels::cpu::onednn {

class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// False if the process is ending.
  explicit operator bool() const { return inside_; }

 private:
  bool inside_;
};

/// After a call: closes oneDNN at the end of the process before what that call may have made is destroyed. oneDNN makes
/// static objects with the first product of certain shapes (2.6: with the first of all, with the first that copies its
/// operands, from 16 x 16 on, with the first of certain flat shapes such as 8 x 36), and they are destroyed in reverse
/// order. So exit's handler is registered again after the first product of every kind. Kinds are told apart by the
/// powers of two of the sizes and by `flags`, below 32. A thread that computes the first product of a kind while the
/// process ends is not protected.
void close_at_exit(int64_t m, int64_t n, int64_t k, uint32_t flags);

}  // namespace lorry::kernels::cpu::onednn
