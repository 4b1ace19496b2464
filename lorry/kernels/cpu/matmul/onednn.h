#pragma once

// Calls of oneDNN while the process ends. oneDNN's compiled kernels and caches are static objects and are destroyed
// with all others, while static objects and detached threads of the program may still compute. So every call registers
// first. At the end of the process, before oneDNN's destructors run, CloseAtExit waits for running calls and refuses
// new ones; a refused call uses one of Lorry's own kernels.

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

/// A static object of this type. It must be made after a first call of its kind has made oneDNN's static objects; then
/// it is destroyed, and closes, before they are. Objects that oneDNN makes later are destroyed earlier, so a gap
/// remains. oneDNN 2.6 makes the objects of f32 products in three steps: with the first product, with the first that
/// copies its operands (from 16 x 16 on), and with the first of certain flat shapes (8 x 36). Between their destruction
/// and the closing, a thread that still computes such a product runs a destroyed kernel. Making all three beforehand
/// costs 47 ms; a program avoids the gap by ending its threads before exit.
struct CloseAtExit {
  CloseAtExit() = default;
  ~CloseAtExit();
  CloseAtExit(const CloseAtExit&) = delete;
  CloseAtExit& operator=(const CloseAtExit&) = delete;
};

}  // namespace lorry::kernels::cpu::onednn
