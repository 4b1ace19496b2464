#pragma once

// The rules, a list a family. rules.cpp puts them into one table indexed by operator.

#include <span>

#include "lorry/autograd/call.h"

namespace lorry::autograd {

// One function a file in autograd/rules/.
std::span<const Rule> attention_rules();
std::span<const Rule> indexing_rules();
std::span<const Rule> loss_rules();
std::span<const Rule> matmul_rules();
std::span<const Rule> normalize_rules();
std::span<const Rule> pointwise_rules();
std::span<const Rule> reduce_rules();
std::span<const Rule> sort_rules();
std::span<const Rule> view_rules();

}  // namespace lorry::autograd
