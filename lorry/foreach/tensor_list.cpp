#include "lorry/foreach/tensor_list.h"

#include "lorry/foreach/operator_plan.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"

namespace lorry::foreach {
namespace {

constinit thread_local Strategy t_strategy = Strategy::automatic;

}  // namespace

TensorList::Body::Body(std::vector<Tensor> listed)
    : tensors(std::move(listed)), plans(std::make_unique<detail::PlanCache>()) {}
TensorList::Body::~Body() = default;

TensorList::TensorList(std::vector<Tensor> tensors) : body_(std::make_shared<Body>(std::move(tensors))) {}

TensorList TensorList::like() const {
  std::vector<Tensor> made;
  made.reserve(size());
  for (const Tensor& x : *this) made.push_back(empty_like(x));
  return made;
}

TensorList TensorList::like(DType dtype) const {
  std::vector<Tensor> made;
  made.reserve(size());
  for (const Tensor& x : *this) made.push_back(empty_like(x, dtype));
  return made;
}

StrategyScope::StrategyScope(Strategy strategy) : before_(t_strategy) { t_strategy = strategy; }
StrategyScope::~StrategyScope() { t_strategy = before_; }
Strategy current_strategy() { return t_strategy; }

}  // namespace lorry::foreach
