// Programs on hyper-dual numbers.

#include "tests/autograd/programs.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace lorry::test {
int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool broadcasts(const Sizes& from, const Sizes& to) {
  if (from.size() > to.size()) return false;
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t size = from[from.size() - 1 - d];
    if (size != 1 && size != to[to.size() - 1 - d]) return false;
  }
  return true;
}

namespace {

/// The element of a tensor of `from` that broadcasting reads for element i of a tensor of `to`.
int64_t broadcast(int64_t i, const Sizes& from, const Sizes& to) {
  int64_t at = 0, stride = 1;
  for (size_t d = 0; d < to.size(); ++d) {
    const int64_t coordinate = i % to[to.size() - 1 - d];
    i /= to[to.size() - 1 - d];
    if (d >= from.size()) continue;
    const int64_t size = from[from.size() - 1 - d];
    at += (size == 1 ? 0 : coordinate) * stride;
    stride *= size;
  }
  return at;
}

/// The coordinates in the source of a view's.
using SourceOf = std::function<Sizes(Sizes)>;

/// The sizes of a view, which keeps coordinates, and where they lie in the source.
std::pair<Sizes, SourceOf> coordinates_of_view(const Step& step, const Sizes& from) {
  const auto& n = step.numbers;
  Sizes to = from;
  switch (step.action) {
    case Action::select:
      to.erase(to.begin() + n[0]);
      return {to, [n](Sizes c) { return c.insert(c.begin() + n[0], n[1]), c; }};
    case Action::slice:
      to[static_cast<size_t>(n[0])] = (n[2] - n[1] + n[3] - 1) / n[3];
      return {to,
              [n](Sizes c) { return c[static_cast<size_t>(n[0])] = n[1] + c[static_cast<size_t>(n[0])] * n[3], c; }};
    case Action::transpose:
    case Action::turn:
      std::swap(to[static_cast<size_t>(n[0])], to[static_cast<size_t>(n[1])]);
      return {to, [n](Sizes c) { return std::swap(c[static_cast<size_t>(n[0])], c[static_cast<size_t>(n[1])]), c; }};
    case Action::unsqueeze:
      to.insert(to.begin() + n[0], 1);
      return {to, [n](Sizes c) { return c.erase(c.begin() + n[0]), c; }};
    case Action::expand:
      return {n, [from](Sizes c) {
                c.erase(c.begin(), c.end() - static_cast<int64_t>(from.size()));
                for (size_t d = 0; d < c.size(); ++d)
                  if (from[d] == 1) c[d] = 0;
                return c;
              }};
    case Action::diagonal:
      to.erase(to.begin(), to.begin() + 2);
      to.push_back(std::min(from[0], from[1]));
      return {to, [](Sizes c) {
                const int64_t i = c.back();
                c.pop_back();
                return c.insert(c.begin(), {i, i}), c;
              }};
    default:
      return {to, [](Sizes c) { return c; }};
  }
}

/// The sizes of a view, and which element of its source each of its elements is.
std::pair<Sizes, std::vector<int>> elements_of_view(const Step& step, const Sizes& from) {
  if (step.action == Action::flatten) {
    std::vector<int> all(static_cast<size_t>(product(from)));
    std::iota(all.begin(), all.end(), 0);
    return {{product(from)}, all};
  }
  const auto [to, source] = coordinates_of_view(step, from);
  std::vector<int> elements;
  for (int64_t i = 0; i < product(to); ++i) {
    Sizes c(to.size());
    int64_t rest = i;
    for (size_t d = to.size(); d-- > 0; rest /= to[d]) c[d] = rest % to[d];
    int64_t at = 0;
    const Sizes in = source(c);
    for (size_t d = 0; d < from.size(); ++d) at = at * from[d] + in[d];
    elements.push_back(static_cast<int>(at));
  }
  return {to, elements};
}

template <class T>
std::vector<T> pick(const std::vector<T>& all, const std::vector<int>& elements) {
  std::vector<T> out;
  for (const int i : elements) out.push_back(all[static_cast<size_t>(i)]);
  return out;
}

using HyperDuals = std::vector<HyperDual>;

/// Whether the operator's elements depend on those of the operands at the same place.
bool is_elementwise(Action a) {
  return (a >= Action::sine && a <= Action::mul) || a == Action::clone || (is_write(a) && a != Action::write_quietly);
}

/// An element of an elementwise operator's result from those of its operands.
HyperDual element(const Step& step, HyperDual x, HyperDual y, HyperDual z) {
  switch (step.action) {
    case Action::sine:
    case Action::write_sine:
      return sin(x);
    case Action::cosine:
      return cos(x);
    case Action::tangent:
    case Action::write_tangent:
      return tanh(x);
    case Action::scale:
    case Action::write_scale:
      return x * step.data[0];
    case Action::add:
    case Action::write_add:
      return x + y;
    case Action::sub:
      return x - y;
    case Action::mul:
    case Action::write_mul:
      return x * y;
    case Action::write_addcmul:
      return x + y * z;
    case Action::write_copy:
      return y;
    case Action::write_zero:
      return {};
    default:
      return x;
  }
}

/// m x k by k x n.
HyperDuals matrix_product(const HyperDuals& x, const HyperDuals& y, int64_t m, int64_t k, int64_t n) {
  HyperDuals out;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      HyperDual sum;
      for (int64_t p = 0; p < k; ++p) sum = sum + x[static_cast<size_t>(i * k + p)] * y[static_cast<size_t>(p * n + j)];
      out.push_back(sum);
    }
  return out;
}

/// Along dimension d.
HyperDuals sums(const HyperDuals& x, const Sizes& sizes, int64_t d) {
  const int64_t inner = product({sizes.begin() + d + 1, sizes.end()}), size = sizes[static_cast<size_t>(d)];
  HyperDuals out(x.size() / static_cast<size_t>(size));
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    HyperDual& sum = out[static_cast<size_t>(i / (inner * size) * inner + i % inner)];
    sum = sum + x[static_cast<size_t>(i)];
  }
  return out;
}

}  // namespace

// ---- the model -----------------------------------------------------------------------------------------------------

bool Model::requires_grad(int value) const {
  const Value& v = values_[static_cast<size_t>(value)];
  return !v.cut && memories_[static_cast<size_t>(v.memory)].grad;
}

bool Model::distinct(int value) const {
  std::vector<int> at = values_[static_cast<size_t>(value)].at;
  std::sort(at.begin(), at.end());
  return std::adjacent_find(at.begin(), at.end()) == at.end();
}

Version Model::version(int value, int step) const {
  const Value& v = values_[static_cast<size_t>(value)];
  Version version{value, v.made, std::numeric_limits<int>::max()};
  for (const int turn : v.turned)
    if (turn <= step) version.first = std::max(version.first, turn);
  for (const int write : memories_[static_cast<size_t>(v.memory)].writes) {
    if (write <= step) version.first = std::max(version.first, write);
    if (write > step) version.end = std::min(version.end, write);
  }
  return version;
}

std::vector<HyperDual> Model::read(int value, const Probe* probe) {
  const Value& v = values_[static_cast<size_t>(value)];
  std::vector<HyperDual> out = pick(memories_[static_cast<size_t>(v.memory)].data, v.at);
  if (v.cut)
    for (HyperDual& x : out) x = {x.value};
  if (probe != nullptr && !v.place.empty() && step_ > probe->version.first && step_ <= probe->version.end)
    for (size_t i = 0; i < out.size(); ++i) out[i].a += probe->direction[static_cast<size_t>(v.place[i])];
  return out;
}

int Model::fresh(Sizes sizes, std::vector<HyperDual> data, bool grad) {
  std::vector<int> at(data.size());
  std::iota(at.begin(), at.end(), 0);
  memories_.push_back({std::move(data), grad});
  values_.push_back({static_cast<int>(memories_.size()) - 1, at, std::move(sizes), step_});
  return static_cast<int>(values_.size()) - 1;
}

void Model::view(const Step& step, const Probe* probe) {
  const Value from = values_[static_cast<size_t>(step.x)];
  const auto [sizes, elements] = elements_of_view(step, from.sizes);
  Value v{from.memory, pick(from.at, elements), sizes, step_, step.x, from.cut || step.action == Action::detach};
  const bool in_version = probe != nullptr && step_ > probe->version.first && step_ < probe->version.end;
  if (in_version && !from.place.empty() && !v.cut) v.place = pick(from.place, elements);
  values_.push_back(v);
}

void Model::write(const Step& step, const std::vector<HyperDual>& data, bool grad) {
  const Value& v = values_[static_cast<size_t>(step.x)];
  Memory& memory = memories_[static_cast<size_t>(v.memory)];
  for (size_t i = 0; i < v.at.size(); ++i) memory.data[static_cast<size_t>(v.at[i])] = data[i];
  memory.grad |= grad;
  if (memory.grad) memory.writes.push_back(step_);
}

void Model::leaf(const Step& step, const Seeds& seeds) {
  std::vector<HyperDual> out;
  for (const double value : step.data) out.push_back({value});
  const bool moves = step.action == Action::leaf;
  if (moves) {
    const size_t number = leaves_++;
    for (size_t i = 0; i < out.size() && !seeds.a.empty(); ++i) out[i].a = seeds.a[number][i];
    for (size_t i = 0; i < out.size() && !seeds.b.empty(); ++i) out[i].b = seeds.b[number][i];
  }
  fresh(step.numbers, out, moves);
  memories_.back().leaf = moves;
  memories_.back().row_major = true;
}

void Model::save(int value) { memories_[static_cast<size_t>(values_[static_cast<size_t>(value)].memory)].saved = true; }

/// What backward may read of the operands; of results, see operate.
void Model::save_operands(const Step& step) {
  switch (step.action) {
    case Action::sine:
    case Action::cosine:
      return save(step.x);
    case Action::mul:
    case Action::matmul:
      save(step.x);
      return save(step.y);
    case Action::write_mul:
      return save(step.y);
    case Action::write_addcmul:
      save(step.y);
      return save(step.z);
    default:
      return;
  }
}

void Model::operate(const Step& step, const Probe* probe) {
  const bool in_place = is_write(step.action), elementwise = is_elementwise(step.action);
  Sizes shape = values_[static_cast<size_t>(step.x)].sizes;
  // What a write overwrites belongs to the memory, whichever view it is written through.
  std::vector<HyperDual> x = read(step.x, in_place ? nullptr : probe);
  bool grad = requires_grad(step.x);
  const auto broadcast_to = [](const std::vector<HyperDual>& from, const Sizes& sizes, const Sizes& to) {
    std::vector<HyperDual> out;
    for (int64_t i = 0; i < product(to); ++i) out.push_back(from[static_cast<size_t>(broadcast(i, sizes, to))]);
    return out;
  };
  const auto operand = [&](int value) -> std::vector<HyperDual> {
    if (value < 0) return {};
    grad |= requires_grad(value);
    const std::vector<HyperDual> all = read(value, probe);
    if (!elementwise) return all;
    const Sizes from = values_[static_cast<size_t>(value)].sizes;
    if (!broadcasts(from, shape)) x = broadcast_to(x, shape, from), shape = from;
    return broadcast_to(all, from, shape);
  };
  const std::vector<HyperDual> y = operand(step.y), z = operand(step.z);
  std::vector<HyperDual> out;
  if (elementwise) {
    for (size_t i = 0; i < x.size(); ++i)
      out.push_back(element(step, x[i], y.empty() ? HyperDual() : y[i], z.empty() ? HyperDual() : z[i]));
  } else if (step.action == Action::matmul) {
    const int64_t n = values_[static_cast<size_t>(step.y)].sizes[1];
    out = matrix_product(x, y, shape[0], shape[1], n);
    shape = {shape[0], n};
  } else if (step.action == Action::sum) {
    out = sums(x, shape, step.numbers[0]);
    shape.erase(shape.begin() + step.numbers[0]);
  } else {  // cat, along the first dimension
    out = x;
    out.insert(out.end(), y.begin(), y.end());
    shape[0] += values_[static_cast<size_t>(step.y)].sizes[0];
  }
  save_operands(step);
  if (in_place) {
    write(step, out, grad);
    if (step.action == Action::write_tangent) save(step.x);
  } else if (!out.empty()) {
    const int made = fresh(shape, out, grad);
    memories_.back().row_major = step.action == Action::matmul || step.action == Action::cat;
    if (step.action == Action::tangent) save(made);
  }
}

/// Gradients go where they went before.
void Model::write_quietly(const Step& step) {
  const Value& v = values_[static_cast<size_t>(step.x)];
  for (const int at : v.at) memories_[static_cast<size_t>(v.memory)].data[static_cast<size_t>(at)].value = step.data[0];
}

void Model::turn(const Step& step) {
  Value& v = values_[static_cast<size_t>(step.x)];
  const auto [sizes, elements] = elements_of_view(step, v.sizes);
  v.sizes = sizes;
  v.at = pick(v.at, elements);
  if (!v.place.empty()) v.place = pick(v.place, elements);
  if (!requires_grad(step.x)) return;
  if (v.of < 0)
    memories_[static_cast<size_t>(v.memory)].writes.push_back(step_);
  else
    v.turned.push_back(step_);
}

void Model::begin_version(const Probe& probe) {
  Value& v = values_[static_cast<size_t>(probe.version.value)];
  if (v.of >= 0) {
    v.place.resize(v.at.size());
    std::iota(v.place.begin(), v.place.end(), 0);
  } else {
    for (size_t i = 0; i < v.at.size(); ++i)
      memories_[static_cast<size_t>(v.memory)].data[static_cast<size_t>(v.at[i])].a += probe.direction[i];
  }
}

void Model::run(const Step& step, const Seeds& seeds, const Probe* probe) {
  if (step.action == Action::leaf || step.action == Action::constant)
    leaf(step, seeds);
  else if (is_view(step.action))
    view(step, probe);
  else if (step.action == Action::write_quietly)
    write_quietly(step);
  else if (step.action == Action::turn)
    turn(step);
  else if (step.action != Action::hook && step.action != Action::retain)
    operate(step, probe);
  if (probe != nullptr && step_ == probe->version.first) begin_version(*probe);
  ++step_;
}

HyperDual Model::loss(const Program& program, const Probe* probe) {
  HyperDual sum;
  for (const auto& [value, weights] : program.loss) {
    const std::vector<HyperDual> x = read(value, probe);
    for (size_t i = 0; i < x.size(); ++i) sum = sum + x[i] * weights[i];
  }
  return sum;
}

}  // namespace lorry::test
