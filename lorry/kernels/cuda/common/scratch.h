#pragma once

// Temporary memory for kernels. It belongs to the stream that it is allocated for and may be freed as soon as the
// kernels are enqueued: the memory is reused only by work that runs after them.

#include "lorry/device/stream.h"
#include "lorry/memory/allocate.h"

namespace lorry::kernels::cuda {

class Scratch {
 public:
  Scratch(int64_t bytes, Stream stream) : data_(allocate(bytes, stream)), bytes_(bytes), device_(stream.device) {}
  ~Scratch() { memory::release(device_, data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  static void* allocate(int64_t bytes, Stream stream) {
    const StreamScope scope(stream);
    return memory::allocate(stream.device, bytes);
  }

  void* data_;
  int64_t bytes_;
  Device device_;
};

}  // namespace lorry::kernels::cuda
