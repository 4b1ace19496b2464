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
    case Action::turn:
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

void Model::run(const Step& step, const Seeds& seeds, const Probe* probe) {
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
          for (int64_t p = 0; p < k; ++p)
            sum = sum + x[static_cast<size_t>(i * k + p)] * y[static_cast<size_t>(p * n + j)];
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
    case Action::turn: {
      const auto [turned, elements] = elements_of_view(step, shape);
      Value& v = values_[static_cast<size_t>(step.x)];
      v.sizes = turned;
      v.at = pick(v.at, elements);
      if (!v.place.empty()) v.place = pick(v.place, elements);
      if (!requires_grad(step.x)) break;
      if (v.of < 0) {
        memories_[static_cast<size_t>(v.memory)].writes.push_back(step_);
      } else {
        v.turned.push_back(step_);
      }
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

  if (probe != nullptr && step_ == probe->version.first) {
    Value& v = values_[static_cast<size_t>(probe->version.value)];
    if (v.of >= 0) {
      v.place.resize(v.at.size());
      std::iota(v.place.begin(), v.place.end(), 0);
    } else {
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

}  // namespace lorry::test
