#include "tests/autograd/programs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"
#include "tests/support/tensors.h"

namespace lorry::test {
namespace {

using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool is_write(Action a) { return a >= Action::write_sine && a <= Action::write_quietly; }
bool is_view(Action a) { return a >= Action::select && a <= Action::detach; }

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

bool broadcasts(const Sizes& from, const Sizes& to) {
  if (from.size() > to.size()) return false;
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t size = from[from.size() - 1 - d];
    if (size != 1 && size != to[to.size() - 1 - d]) return false;
  }
  return true;
}

/// The sizes of a view, and which element of its source each of its elements is.
std::pair<Sizes, std::vector<int>> elements_of_view(const Step& step, const Sizes& from) {
  const auto& n = step.numbers;
  const auto rank = static_cast<int64_t>(from.size());
  Sizes to = from;
  // Where coordinate `to` of the view lies in the source.
  std::function<Sizes(Sizes)> source = [](Sizes c) { return c; };
  switch (step.action) {
    case Action::select:
      to.erase(to.begin() + n[0]);
      source = [&](Sizes c) { return c.insert(c.begin() + n[0], n[1]), c; };
      break;
    case Action::slice:
      to[static_cast<size_t>(n[0])] = (n[2] - n[1] + n[3] - 1) / n[3];
      source = [&](Sizes c) { return c[static_cast<size_t>(n[0])] = n[1] + c[static_cast<size_t>(n[0])] * n[3], c; };
      break;
    case Action::transpose:
      std::swap(to[static_cast<size_t>(n[0])], to[static_cast<size_t>(n[1])]);
      source = [&](Sizes c) { return std::swap(c[static_cast<size_t>(n[0])], c[static_cast<size_t>(n[1])]), c; };
      break;
    case Action::unsqueeze:
      to.insert(to.begin() + n[0], 1);
      source = [&](Sizes c) { return c.erase(c.begin() + n[0]), c; };
      break;
    case Action::expand:
      to = n;
      source = [&](Sizes c) {
        c.erase(c.begin(), c.end() - rank);
        for (size_t d = 0; d < c.size(); ++d)
          if (from[d] == 1) c[d] = 0;
        return c;
      };
      break;
    case Action::diagonal:
      to.erase(to.begin(), to.begin() + 2);
      to.push_back(std::min(from[0], from[1]));
      source = [](Sizes c) {
        const int64_t i = c.back();
        c.pop_back();
        return c.insert(c.begin(), {i, i}), c;
      };
      break;
    case Action::flatten:
      to = {product(from)};
      break;
    default:
      break;
  }
  std::vector<int> elements;
  for (int64_t i = 0; i < product(to); ++i) {
    if (step.action == Action::flatten) {
      elements.push_back(static_cast<int>(i));
      continue;
    }
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

void Model::run(const Step& step, const Seeds& seeds, const Probe* probe) {
  const size_t before = values_.size();
  const auto sizes = [&](int value) { return values_[static_cast<size_t>(value)].sizes; };
  const auto save = [&](int value) {
    memories_[static_cast<size_t>(values_[static_cast<size_t>(value)].memory)].saved = true;
  };
  std::vector<HyperDual> x, y, z;
  Sizes shape;
  bool grad = false;
  const bool in_place = is_write(step.action);
  if (step.x >= 0 && !is_view(step.action)) {
    shape = sizes(step.x);
    // What a write overwrites belongs to the memory, whichever view it is written through.
    x = read(step.x, in_place ? nullptr : probe);
    grad = requires_grad(step.x);
  }
  const auto operand = [&](int value) {
    std::vector<HyperDual> all = read(value, probe), out;
    if (step.action != Action::matmul && step.action != Action::cat) {
      const Sizes from = sizes(value);
      const Sizes to = broadcasts(from, shape) ? shape : from;
      if (to != shape) {
        for (int64_t i = 0; i < product(to); ++i) out.push_back(x[static_cast<size_t>(broadcast(i, shape, to))]);
        x = std::exchange(out, {});
        shape = to;
      }
      for (int64_t i = 0; i < product(to); ++i) out.push_back(all[static_cast<size_t>(broadcast(i, from, to))]);
      all = out;
    }
    grad |= requires_grad(value);
    return all;
  };
  if (step.y >= 0) y = operand(step.y);
  if (step.z >= 0) z = operand(step.z);
  std::vector<HyperDual> out;
  const auto each = [&](const auto& f) {
    for (size_t i = 0; i < x.size(); ++i) out.push_back(f(i));
  };

  switch (step.action) {
    case Action::leaf:
    case Action::constant:
      for (const double value : step.data) out.push_back({value});
      if (step.action == Action::leaf) {
        const size_t leaf = leaves_++;
        for (size_t i = 0; i < out.size() && !seeds.a.empty(); ++i) out[i].a = seeds.a[leaf][i];
        for (size_t i = 0; i < out.size() && !seeds.b.empty(); ++i) out[i].b = seeds.b[leaf][i];
        fresh(step.numbers, out, true);
        memories_.back().leaf = true;
      } else {
        fresh(step.numbers, out, false);
      }
      memories_.back().row_major = true;
      break;
    case Action::sine:
    case Action::write_sine:
      each([&](size_t i) { return sin(x[i]); });
      if (!in_place) save(step.x);
      break;
    case Action::cosine:
      each([&](size_t i) { return cos(x[i]); });
      save(step.x);
      break;
    case Action::tangent:
    case Action::write_tangent:
      each([&](size_t i) { return tanh(x[i]); });
      break;
    case Action::scale:
    case Action::write_scale:
      each([&](size_t i) { return x[i] * step.data[0]; });
      break;
    case Action::add:
    case Action::write_add:
      each([&](size_t i) { return x[i] + y[i]; });
      break;
    case Action::sub:
      each([&](size_t i) { return x[i] - y[i]; });
      break;
    case Action::mul:
    case Action::write_mul:
      each([&](size_t i) { return x[i] * y[i]; });
      if (!in_place) save(step.x);
      save(step.y);
      break;
    case Action::write_addcmul:
      each([&](size_t i) { return x[i] + y[i] * z[i]; });
      save(step.y);
      save(step.z);
      break;
    case Action::write_copy:
      out = y;
      break;
    case Action::write_zero:
      out.resize(x.size());
      break;
    case Action::matmul: {
      const int64_t m = shape[0], k = shape[1], n = sizes(step.y)[1];
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          HyperDual sum;
          for (int64_t p = 0; p < k; ++p) sum = sum + x[static_cast<size_t>(i * k + p)] * y[static_cast<size_t>(p * n + j)];
          out.push_back(sum);
        }
      shape = {m, n};
      save(step.x);
      save(step.y);
      break;
    }
    case Action::sum: {
      const auto d = static_cast<size_t>(step.numbers[0]);
      const int64_t inner = product({shape.begin() + static_cast<int64_t>(d) + 1, shape.end()}), size = shape[d];
      out.resize(x.size() / static_cast<size_t>(size));
      for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
        HyperDual& sum = out[static_cast<size_t>(i / (inner * size) * inner + i % inner)];
        sum = sum + x[static_cast<size_t>(i)];
      }
      shape.erase(shape.begin() + static_cast<int64_t>(d));
      break;
    }
    case Action::cat:  // along the first dimension
      out = x;
      out.insert(out.end(), y.begin(), y.end());
      shape[0] += sizes(step.y)[0];
      break;
    case Action::clone:
      out = x;
      break;
    case Action::write_quietly: {
      // Gradients go where they went before.
      const Value& v = values_[static_cast<size_t>(step.x)];
      for (size_t i = 0; i < v.at.size(); ++i)
        memories_[static_cast<size_t>(v.memory)].data[static_cast<size_t>(v.at[i])].value = step.data[0];
      break;
    }
    case Action::hook:
    case Action::retain:
      break;
    default:
      view(step, probe);
  }
  if (in_place && step.action != Action::write_quietly) {
    write(step, out, grad);
    if (step.action == Action::write_tangent) save(step.x);
  } else if (step.action != Action::leaf && step.action != Action::constant && !out.empty()) {
    const int made = fresh(shape, out, grad);
    memories_.back().row_major = step.action == Action::matmul || step.action == Action::cat;
    if (step.action == Action::tangent) save(made);
  }

  if (probe != nullptr) {
    const int value = probe->version.value;
    if (static_cast<int>(before) == value && values_.size() > before && values_[before].of >= 0) {
      values_[before].place.resize(values_[before].at.size());
      std::iota(values_[before].place.begin(), values_[before].place.end(), 0);
    }
    if (step_ == probe->version.first && values_[static_cast<size_t>(value)].of < 0) {
      const Value& v = values_[static_cast<size_t>(value)];
      for (size_t i = 0; i < v.at.size(); ++i)
        memories_[static_cast<size_t>(v.memory)].data[static_cast<size_t>(v.at[i])].a += probe->direction[i];
    }
  }
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

// ---- making programs -----------------------------------------------------------------------------------------------

namespace {

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  Program make(int length) {
    add_leaf(Action::leaf);
    for (int tries = 0; static_cast<int>(program_.steps.size()) < length && tries < 50 * length; ++tries) propose();
    for (size_t v = 0; v < model_.values().size(); ++v)
      if (chance(0.4) || v + 1 == model_.values().size())
        program_.loss.emplace_back(static_cast<int>(v), numbers(model_.values()[v].at.size()));
    return std::move(program_);
  }

 private:
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  std::vector<double> numbers(size_t count) {
    std::vector<double> out(count);
    for (double& x : out) x = std::uniform_real_distribution<>(-1.2, 1.2)(random_);
    return out;
  }
  /// Some value, more often a recent one.
  int value() {
    const auto count = static_cast<int64_t>(model_.values().size());
    return static_cast<int>(std::max(number(0, count - 1), number(0, count - 1)));
  }
  const Model::Value& at(int value) const { return model_.values()[static_cast<size_t>(value)]; }
  const Model::Memory& memory(int value) const { return model_.memories()[static_cast<size_t>(at(value).memory)]; }

  void add(Step step) {
    model_.run(step);
    program_.steps.push_back(std::move(step));
  }

  void add_leaf(Action action) {
    Step step{action};
    for (int64_t rank = number(action == Action::leaf ? 1 : 0, 3); rank > 0; --rank) step.numbers.push_back(number(1, 3));
    step.data = numbers(static_cast<size_t>(product(step.numbers)));
    add(step);
  }

  void propose() {
    if (chance(0.06)) return add_leaf(chance(0.6) ? Action::leaf : Action::constant);
    if (chance(0.12)) return propose_hook();
    if (chance(0.4)) return propose_view();
    if (chance(0.5)) return propose_write();
    propose_operator();
  }

  void propose_operator() {
    Step step{static_cast<Action>(number(static_cast<int>(Action::sine), static_cast<int>(Action::clone))), value()};
    const Sizes& x = at(step.x).sizes;
    switch (step.action) {
      case Action::scale:
        step.data = numbers(1);
        break;
      case Action::add:
      case Action::sub:
      case Action::mul:
        step.y = value();
        if (!broadcasts(at(step.y).sizes, x) && !broadcasts(x, at(step.y).sizes)) return;
        break;
      case Action::matmul:
        step.y = value();
        if (x.size() != 2 || at(step.y).sizes.size() != 2 || x[1] != at(step.y).sizes[0]) return;
        break;
      case Action::sum:
        if (x.empty()) return;
        step.numbers = {number(0, static_cast<int64_t>(x.size()) - 1)};
        break;
      case Action::cat: {
        step.y = value();
        const Sizes& y = at(step.y).sizes;
        if (x.empty() || y.size() != x.size() || !std::equal(x.begin() + 1, x.end(), y.begin() + 1)) return;
        break;
      }
      default:
        break;
    }
    add(step);
  }

  void propose_view() {
    Step step{static_cast<Action>(number(static_cast<int>(Action::select), static_cast<int>(Action::detach))), value()};
    const Sizes& x = at(step.x).sizes;
    const auto rank = static_cast<int64_t>(x.size());
    if (step.action == Action::detach && !chance(0.2)) return;
    if (rank == 0 && step.action != Action::unsqueeze && step.action != Action::expand && step.action != Action::detach) return;
    const int64_t d = rank == 0 ? 0 : number(0, rank - 1), size = rank == 0 ? 1 : x[static_cast<size_t>(d)];
    switch (step.action) {
      case Action::select:
        step.numbers = {d, number(0, size - 1)};
        break;
      case Action::slice: {
        const int64_t start = number(0, size - 1);
        step.numbers = {d, start, number(start + 1, size), number(1, 2)};
        break;
      }
      case Action::transpose:
        step.numbers = {d, number(0, rank - 1)};
        break;
      case Action::unsqueeze:
        if (rank >= 4) return;
        step.numbers = {number(0, rank)};
        break;
      case Action::expand:
        step.numbers = x;
        for (int64_t& n : step.numbers) n = n == 1 ? number(1, 3) : n;
        if (rank < 3 && chance(0.5)) step.numbers.insert(step.numbers.begin(), number(1, 2));
        break;
      case Action::diagonal:
        if (rank < 2) return;
        break;
      case Action::flatten:
        if (!memory(step.x).row_major) return;
        for (size_t i = 1; i < at(step.x).at.size(); ++i)
          if (at(step.x).at[i] != at(step.x).at[i - 1] + 1) return;
        break;
      default:
        break;
    }
    add(step);
  }

  /// Whether a write of x may read y: no element of y is written before it is read.
  bool apart(int x, int y) {
    if (at(x).memory != at(y).memory || (at(x).at == at(y).at && at(x).sizes == at(y).sizes)) return true;
    for (const int i : at(x).at)
      if (std::find(at(y).at.begin(), at(y).at.end(), i) != at(y).at.end()) return false;
    return true;
  }

  void propose_write() {
    Step step{static_cast<Action>(number(static_cast<int>(Action::write_sine), static_cast<int>(Action::write_quietly))), value()};
    const auto quiet = step.action == Action::write_quietly;
    if (quiet && !chance(0.3)) return;
    if (at(step.x).cut || !model_.distinct(step.x) || memory(step.x).leaf) return;
    if (memory(step.x).saved && !chance(0.08)) return;
    const auto operand = [&] {
      const int y = value();
      return broadcasts(at(y).sizes, at(step.x).sizes) && apart(step.x, y) ? y : -1;
    };
    const bool reads_y = step.action == Action::write_add || step.action == Action::write_mul ||
                         step.action == Action::write_copy || step.action == Action::write_addcmul;
    if (reads_y && (step.y = operand()) < 0) return;
    if (step.action == Action::write_addcmul && (step.z = operand()) < 0) return;
    if (step.action == Action::write_scale || quiet) step.data = numbers(1);
    program_.may_be_refused |= memory(step.x).saved;
    add(step);
  }

  void propose_hook() {
    Step step{chance(0.5) ? Action::hook : Action::retain, value()};
    if (model_.requires_grad(step.x)) add(step);
  }

  std::mt19937 random_;
  Model model_;
  Program program_;
};

}  // namespace

Program random_program(uint32_t seed, int length) { return Maker(seed).make(length); }

// ---- running them in Lorry -----------------------------------------------------------------------------------------

Execution execute(const Program& program) {
  Execution run;
  auto& values = run.values;
  int number = 0;
  for (const Step& step : program.steps) {
    const int at = number++;
    const Tensor x = step.x < 0 ? Tensor() : values[static_cast<size_t>(step.x)];
    const Tensor y = step.y < 0 ? Tensor() : values[static_cast<size_t>(step.y)];
    const Tensor z = step.z < 0 ? Tensor() : values[static_cast<size_t>(step.z)];
    const auto& n = step.numbers;
    const Dims dims(std::span<const int64_t>(n.data(), n.size()));
    switch (step.action) {
      case Action::leaf: values.push_back(leaf(dims, step.data)); run.leaves.push_back(values.back()); break;
      case Action::constant: values.push_back(lorry::test::values(dims, step.data)); break;
      case Action::sine: values.push_back(x.sin()); break;
      case Action::cosine: values.push_back(x.cos()); break;
      case Action::tangent: values.push_back(x.tanh()); break;
      case Action::scale: values.push_back(x.mul(step.data[0])); break;
      case Action::add: values.push_back(x.add(y)); break;
      case Action::sub: values.push_back(x.sub(y)); break;
      case Action::mul: values.push_back(x.mul(y)); break;
      case Action::matmul: values.push_back(x.matmul(y)); break;
      case Action::sum: values.push_back(x.sum({n[0]})); break;
      case Action::cat: values.push_back(cat({x, y}, 0)); break;
      case Action::clone: values.push_back(x.clone()); break;
      case Action::select: values.push_back(x.select(n[0], n[1])); break;
      case Action::slice: values.push_back(x.slice(n[0], n[1], n[2], n[3])); break;
      case Action::transpose: values.push_back(x.transpose(n[0], n[1])); break;
      case Action::unsqueeze: values.push_back(x.unsqueeze(n[0])); break;
      case Action::expand: values.push_back(x.expand(dims)); break;
      case Action::diagonal: values.push_back(x.diagonal()); break;
      case Action::flatten: values.push_back(x.view({-1})); break;
      case Action::detach: values.push_back(x.detach()); break;
      case Action::write_sine: x.sin_(); break;
      case Action::write_tangent: x.tanh_(); break;
      case Action::write_scale: x.mul_(step.data[0]); break;
      case Action::write_add: x.add_(y); break;
      case Action::write_mul: x.mul_(y); break;
      case Action::write_copy: x.copy_(y); break;
      case Action::write_zero: x.zero_(); break;
      case Action::write_addcmul: x.addcmul_(y, z); break;
      case Action::write_quietly: {
        const NoGrad quiet;
        x.fill_(step.data[0]);
        break;
      }
      case Action::hook: {
        const auto heard = std::make_shared<Execution::Heard>(Execution::Heard{at});
        run.hooks.push_back(heard);
        x.register_hook([heard](const Tensor& g) {
          ++heard->calls;
          heard->gradient = g.detach().clone();
          return Tensor();
        });
        break;
      }
      case Action::retain: x.retain_grad(); break;
    }
  }
  run.loss = zeros({}, {kF64});
  for (const auto& [value, weights] : program.loss) {
    const Tensor& x = values[static_cast<size_t>(value)];
    run.loss = run.loss.add(x.mul(lorry::test::values(x.sizes(), weights)).sum());
  }
  return run;
}

std::string to_string(const Program& program) {
  static constexpr const char* kNames[] = {
      "leaf", "constant", "sin", "cos", "tanh", "mul", "add", "sub", "mul", "matmul", "sum", "cat", "clone", "select",
      "slice", "transpose", "unsqueeze", "expand", "diagonal", "view(-1)", "detach", "sin_", "tanh_", "mul_", "add_",
      "mul_", "copy_", "zero_", "addcmul_", "fill_ in NoGrad", "register_hook", "retain_grad"};
  std::string text;
  int made = 0, at = 0;
  for (const Step& step : program.steps) {
    const bool value = !is_write(step.action) && step.action != Action::hook && step.action != Action::retain;
    text += fmt::format("{:3} ", at++);
    if (value) text += fmt::format("v{} = ", made++);
    text += kNames[static_cast<int>(step.action)];
    for (const int v : {step.x, step.y, step.z})
      if (v >= 0) text += fmt::format(" v{}", v);
    for (const int64_t n : step.numbers) text += fmt::format(" {}", n);
    if (step.data.size() == 1) text += fmt::format(" {:.3f}", step.data[0]);
    text += '\n';
  }
  text += "loss of";
  for (const auto& [value, weights] : program.loss) text += fmt::format(" v{}", value);
  return text + '\n';
}

}  // namespace lorry::test
