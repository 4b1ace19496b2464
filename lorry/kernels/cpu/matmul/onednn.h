#pragma once

// Calls into oneDNN while the process ends. oneDNN's compiled kernels and caches are static objects: they are destroyed
// among all others, while static objects and detached threads of the program may still compute. So a call enters first.
// When the process ends, CloseAtExit waits, before oneDNN's destructors run, for the calls inside and lets no other in;
// who is not let in takes a kernel of Lorry's own.

namespace lorry::kernels::cpu::onednn {

class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  /// False when the process is ending.
  explicit operator bool() const { return inside_; }

 private:
  bool inside_;
};

/// A static object of this type, made after a first call of its kind has made oneDNN's static objects, is destroyed
/// before they are: it closes. What oneDNN makes later is destroyed first, so a window remains. oneDNN 2.6 makes the
/// objects of f32 products in three goes: with the first product, with the first that copies its operands (from 16 x 16
/// on), and with the first of certain flat shapes (8 x 36). Between their destruction and the closing, a thread of the
/// program that still computes such a product runs a kernel that is gone. To make all three beforehand costs 47 ms; a
/// program closes the window by ending its threads before exit.
struct CloseAtExit {
  CloseAtExit() = default;
  ~CloseAtExit();
  CloseAtExit(const CloseAtExit&) = delete;
  CloseAtExit& operator=(const CloseAtExit&) = delete;
};

}  // namespace lorry::kernels::cpu::onednn
