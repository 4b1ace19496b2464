#pragma once

// TensorList: many tensors as one value. Operators over lists (foreach.h) give each tensor what the operator would give
// it alone, to the bit, in a few launches instead of one for each tensor. Copying a list copies a pointer. Which
// tensors a list holds never changes. A list caches the plans by which kernels take it (operator_plan.h), so that using
// it again is cheap.

#include <initializer_list>
#include <memory>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/tensor/tensor.h"

namespace lorry::foreach {

using lorry::Strategy;

namespace detail {
struct PlanCache;
}

class TensorList {
 public:
  TensorList() : TensorList(std::vector<Tensor>()) {}
  TensorList(std::vector<Tensor> tensors);
  TensorList(std::initializer_list<Tensor> tensors) : TensorList(std::vector<Tensor>(tensors)) {}

  size_t size() const { return body_->tensors.size(); }
  bool empty() const { return body_->tensors.empty(); }
  const Tensor& operator[](size_t i) const { return body_->tensors[i]; }
  const std::vector<Tensor>& tensors() const { return body_->tensors; }
  auto begin() const { return body_->tensors.begin(); }
  auto end() const { return body_->tensors.end(); }

  /// Uninitialised tensors of the same sizes, strides and devices, and of the same or a given dtype.
  TensorList like() const;
  TensorList like(DType dtype) const;

  /// Whether both are copies of one list.
  bool is_same(const TensorList& other) const { return body_ == other.body_; }

  // ---- for the operators --------------------------------------------------------------------------------------------
  struct Body {
    std::vector<Tensor> tensors;
    std::unique_ptr<detail::PlanCache> plans;  ///< never null
    explicit Body(std::vector<Tensor> listed);
    ~Body();
  };
  const std::shared_ptr<Body>& body() const { return body_; }

 private:
  std::shared_ptr<Body> body_;
};

/// How lists reach kernels on this thread until the end of the scope: a Strategy (device/choices.h). The default is
/// automatic.
class StrategyScope {
 public:
  explicit StrategyScope(Strategy strategy);
  ~StrategyScope();
  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;

 private:
  Strategy before_;
};
Strategy current_strategy();

}  // namespace lorry::foreach
