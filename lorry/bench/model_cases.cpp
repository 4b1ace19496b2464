#include "lorry/bench/model_cases.h"

#include <fmt/core.h>

#include "lorry/ops/ops.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

std::vector<Tensor> tensors_of(const ModelShapes& model, double value, DType dtype) {
  std::vector<Tensor> tensors;
  for (const Dims& shape : model.shapes()) tensors.push_back(full(shape, value, {.dtype = dtype}));
  return tensors;
}

std::vector<const ModelShapes*> ModelCases::models(int64_t bytes_an_element) const {
  const Device device = default_device();
  std::vector<const ModelShapes*> found;
  for (const ModelShapes& model : model_shapes()) {
    if (device.is_cpu()) {
      if (model.elements() <= 32 << 20) found.push_back(&model);
      continue;
    }
    memory::empty_cache(device);
    const int64_t there = device::memory_use(device).free_bytes, needed = bytes_an_element * model.elements();
    if (needed <= there)
      found.push_back(&model);
    else
      fmt::print(stderr, "{}: {} is left out; it takes {:.1f} GB of the device's memory, and {:.1f} GB are free\n",
                 suite_, model.name, static_cast<double>(needed) / 1e9, static_cast<double>(there) / 1e9);
  }
  return found;
}

void ModelCases::finish(Result row) {
  if (copy_rate_ == 0) {
    const int64_t bytes = profile::large_copy(row.device);
    Result copy{.suite = suite_, .name = "copy", .time = profile::CopyRate(row.device).copy(bytes), .bytes = bytes};
    copy_rate_ = profile::ceilings(row.device).copy_bytes_per_s / 1e6;
    copy.ratio_to_ceiling = static_cast<double>(bytes) / copy.time.median_us / copy_rate_;
    rows_.push_back(copy);
  }
  row.ratio_to_ceiling = static_cast<double>(*row.bytes) / row.time.median_us / copy_rate_;
  rows_.push_back(std::move(row));
}

}  // namespace lorry::bench
