#pragma once

// Memory that is being filled while the program goes on: a call that uses a part of it waits for that part first.

#include <memory>

#include "lorry/parallel/collectives.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

/// On a GPU the current stream waits, not the host: every stream on which a part is used, until it is there.
class Arrivals {
 public:
  Arrivals();
  /// Waits for all parts.
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  /// From now on every call of this thread that uses elements of `part`, and every host read of them, waits for
  /// `begun`. Other threads call wait() first. part: contiguous; it takes the place of an earlier part that it
  /// overlaps.
  void expect(const Tensor& part, Begun begun);
  /// Waits for all parts, on this thread's current stream. Throws ParallelError.
  void wait();

  struct Expected;

 private:
  const std::shared_ptr<Expected> expected_;
};

}  // namespace lorry::parallel
