#pragma once

// Memory that a kernel needs while it runs. It belongs to the current stream's order: freed on return, and handed out again
// only to work that runs afterwards.

#include "lorry/device/stream.h"
#include "lorry/memory/memory.h"

namespace lorry::kernels::cuda {

class Scratch {
 public:
  Scratch(int64_t bytes, Stream stream) : data_(memory::allocate(stream.device, bytes)), bytes_(bytes), device_(stream.device) {}
  ~Scratch() { memory::release(device_, data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  int64_t bytes_;
  Device device_;
};

}  // namespace lorry::kernels::cuda
