#pragma once

// Memory that is being filled while the program goes on: a call that uses a part of it waits for that part first.

#include <memory>

#include "lorry/parallel/collectives.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

class Arrivals {
 public:
  Arrivals();
  /// Calls of other threads are not held back: they call wait() first.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// From now on every call of this thread that uses elements of `part`, and every host read of them, waits for
  /// `begun`. part: contiguous.
  void expect(const Tensor& part, Begun begun);
  /// Waits for all parts. Throws ParallelError.
  void wait();

  struct Expected;

 private:
  const std::shared_ptr<Expected> expected_;
};

}  // namespace lorry::parallel
