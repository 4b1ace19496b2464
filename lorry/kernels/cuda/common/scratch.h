#pragma once

// Memory that a kernel needs while it runs. It belongs to the order of the stream it is made for, wherever it goes out
// of scope: freed on return, and handed out again only to work that runs afterwards.

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
