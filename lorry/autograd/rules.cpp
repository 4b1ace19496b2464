#include "lorry/autograd/rules.h"

#include <array>

namespace lorry::autograd {
namespace {

using Table = std::array<const Rule*, kOpCount>;

Table gather() {
  Table table{};
  const auto add = [&](std::span<const Rule> rules) {
    for (const Rule& r : rules) table[static_cast<size_t>(r.op)] = &r;
  };
  for (const auto& family : std::initializer_list<std::span<const Rule>>{
           attention_rules(),
           indexing_rules(),
           loss_rules(),
           matmul_rules(),
           normalize_rules(),
           pointwise_rules(),
           reduce_rules(),
           sort_rules(),
           view_rules(),
       }) {
    add(family);
  }
  return table;
}

}  // namespace

const Rule* find_rule(Op op) {
  static const Table kTable = gather();
  return kTable[static_cast<size_t>(op)];
}

const Rule& rule(Op op) {
  const Rule* found = find_rule(op);
  if (found == nullptr)
    raise_as<GradError>(running_or(name(op)),
                        "the operator has no derivative; detach its input, or call it inside NoGrad");
  return *found;
}

}  // namespace lorry::autograd
