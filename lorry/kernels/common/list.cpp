#include "lorry/kernels/common/list.h"

#include "lorry/base/error.h"

namespace lorry::kernels {

List::List(Device device, std::span<const DType> dtypes, Strategy strategy)
    : device_(device), strategy_(strategy), arrays_(static_cast<int>(dtypes.size())) {
  require<ValueError>(!dtypes.empty() && dtypes.size() <= kMaxArrays,
                      "list: too many arrays for an entry; got {}; expected 1 to {}", dtypes.size(), kMaxArrays);
  for (int k = 0; k < arrays_; ++k) dtypes_[k] = dtypes[k];
}

}  // namespace lorry::kernels
