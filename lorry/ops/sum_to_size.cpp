#include "lorry/ops/sum_to_size.h"

#include "lorry/ops/array.h"

namespace lorry {

Tensor sum_to_size(const Tensor& x, const Dims& sizes) {
  const Running running("sum_to_size");
  require_defined(x, "x");
  const Dims from = x.sizes();
  if (from == sizes) return x;
  const int missing = from.size() - sizes.size();
  Dims summed;
  bool fits = missing >= 0;
  for (int d = 0; fits && d < from.size(); ++d) {
    const int64_t size = d < missing ? 1 : sizes[d - missing];
    fits = size == from[d] || size == 1;
    if (size != from[d] || d < missing) summed.push_back(d);
  }
  require<ShapeError>(fits,
                      "the sizes do not broadcast to the tensor's; got {} for {}; expected sizes equal or 1, aligned "
                      "at the last dimension",
                      sizes, x);
  const Tensor sums = summed.empty() ? x : x.sum(summed, true);
  return missing == 0 ? sums : sums.reshape(sizes);
}

Tensor Tensor::sum_to_size(const Dims& sizes) const { return lorry::sum_to_size(*this, sizes); }

}  // namespace lorry
