#pragma once

// The arguments of an operator over lists.

#include <optional>
#include <vector>

#include "lorry/foreach/tensor_list.h"

namespace lorry::foreach {

/// An argument of an operator over lists: a list, a number for all, a number for each, or a tensor of numbers: 0-d for
/// all, 1-d for each.
class Argument {
 public:
  Argument(TensorList list) : list_(std::move(list)) {}
  Argument(std::vector<Tensor> list) : list_(std::move(list)) {}
  Argument(const Scalar& number) : number_(number) {}
  template <class N>
  requires std::is_arithmetic_v<N> Argument(N number) : number_(number) {}
  Argument(std::vector<Scalar> numbers) : numbers_(std::move(numbers)), each_(true) {}
  Argument(const std::vector<double>& numbers) : numbers_(numbers.begin(), numbers.end()), each_(true) {}
  Argument(const Tensor& numbers) : tensor_(&numbers) {}
  /// One operand for all tensors.
  Argument(const Operand& x) : tensor_(x.tensor()), number_(x.scalar()) {}

  const TensorList* list() const { return list_ ? &*list_ : nullptr; }
  const Tensor* tensor() const { return tensor_; }
  bool is_number() const { return !list_ && tensor_ == nullptr && !each_; }
  bool is_numbers() const { return each_; }
  const Scalar& number() const { return number_; }
  const std::vector<Scalar>& numbers() const { return numbers_; }

  /// The operand of entry e. `holder` holds it if it has to be made.
  Operand at(size_t e, Tensor& holder) const;

 private:
  std::optional<TensorList> list_;
  const Tensor* tensor_ = nullptr;
  Scalar number_;
  std::vector<Scalar> numbers_;
  bool each_ = false;
};

}  // namespace lorry::foreach
