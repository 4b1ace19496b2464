#include "tests/trace/random_programs.h"

#include <random>

namespace lorry::test {
namespace {

/// Last dimensions: short ones, and some that a vector, a warp or whole runs of 16 bytes divide or do not.
constexpr int64_t kLengths[] = {8, 16, 24, 33, 64};

constexpr DType kSome[] = {kF32, kF32, kF32, kF64, kBF16, kF16, kI32, kI64, kU8, kBool};

class Program {
 public:
  Program(uint64_t seed, int steps, bool reads, const Tensors& arguments)
      : random_(seed), steps_(steps), reads_(reads), pool_(arguments) {}

  Tensors run() {
    const NoGrad quiet;
    for (int i = 0; i < steps_; ++i) step();
    Tensors results;
    for (size_t i = 0; i < 4; ++i) results.push_back(any());
    results.push_back(pool_.back());
    return results;
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  Tensor any() { return pool_[static_cast<size_t>(below(static_cast<int64_t>(pool_.size())))]; }
  void add(const Tensor& x) {
    if (x.defined() && x.numel() <= 4096) pool_.push_back(x);
  }
  DType dtype() { return kSome[below(std::ssize(kSome))]; }
  Tensor floating() {
    const Tensor x = any();
    return x.is_floating_point() ? x : x.to(kF32);
  }
  static Tensor number(const Tensor& x) { return x.dtype() == kBool ? x.to(kU8) : x; }
  Dims sizes() {
    Dims s;
    for (int64_t d = below(4); d > 0; --d) s.push_back(1 + below(6));
    return s;
  }
  static bool fits(const Tensor& x, const Dims& into) {
    if (x.dim() > into.size()) return false;
    for (int64_t d = 1; d <= x.dim(); ++d)
      if (x.size(-d) != 1 && x.size(-d) != into[into.size() - static_cast<int>(d)]) return false;
    return true;
  }
  /// Something that broadcasts with x; x itself where nothing else does.
  Tensor partner(const Tensor& x) {
    for (int i = 0; i < 8; ++i) {
      const Tensor y = any();
      if (fits(y, x.sizes()) || fits(x, y.sizes())) return y;
    }
    return x;
  }
  /// Something that a write to x may read: it broadcasts to x and shares no memory with it.
  Tensor source(const Tensor& x) {
    for (int i = 0; i < 8; ++i) {
      const Tensor y = any();
      if (fits(y, x.sizes())) return y.clone();
    }
    return full(x.sizes(), 2, {x.dtype(), x.device()});
  }

  void step() {
    if (reads_ && below(8) == 0) return read();
    switch (below(10)) {
      case 0:
      case 1:
        return unary();
      case 2:
      case 3:
        return binary();
      case 4:
        return below(2) == 0 ? reduction() : rows();
      case 5:
      case 6:
        return view();
      case 7:
      case 8:
        return write();
      default:
        return other();
    }
  }

  /// What the host reads decides what comes next.
  void read() {
    const Tensor x = number(any());
    const Tensor element = x.flatten()[below(x.numel())];
    switch (below(4)) {
      case 0:
        return add(element.item<double>() > 0.5 ? x * 2 + 1 : x - 1);
      case 1:
        if (x.layout().has_internal_overlap()) return;
        return element.to(kF64).item<double>() < 0 ? x.mul_(x) : x.add_(1), void();
      case 2:
        if (const Tensor found = x.flatten().gt(1).nonzero(); found.numel() > 0) add(found);
        return;
      default:
        return add(x * (x.to_vector<double>()[0] > 0 ? 2 : 3));
    }
  }

  void unary() {
    const Tensor x = floating();
    switch (below(9)) {
      case 0:
        return add(x.sin());
      case 1:
        return add(x.tanh());
      case 2:
        return add(x.sigmoid() + 1);
      case 3:
        return add(-x);
      case 4:
        return add(x.abs().sqrt());
      case 5:
        return add(x.relu());
      case 6:
        return add(gelu(x));
      case 7:
        return add(x.to(dtype()));
      default:
        return add(x.square().clamp(0.1, 3));
    }
  }

  /// Operators that change nothing, or only the sign of a zero.
  Tensor neutral(const Tensor& x) {
    switch (below(7)) {
      case 0:
        return x.div(1);
      case 1:
        return x.sub(0);
      case 2:
        return x.is_floating_point() ? x.add(-0.0) : x.add(0);
      case 3:
        return x.neg().neg();
      case 4:
        return x.abs().abs();
      case 5:
        return x.add(full(x.sizes(), below(3), {x.dtype(), x.device()}));
      default:
        return full({}, below(3), {x.dtype(), x.device()}).mul(x);
    }
  }

  void binary() {
    const Tensor x = number(any()), y = number(partner(x));
    switch (below(9)) {
      case 0:
        return add(x.to(kF32).sub(y));
      case 1:
        return add(neutral(x));
      case 7:
        return add(x.mul(y));
      case 2:
        return add(maximum(x, y));
      case 3:
        return add(x.lt(y));
      case 4:
        return add(where(x.gt(0), x, y));
      case 5:
        return add(below(2) == 0 ? x.add(below(5)) : x.mul(below(3)));
      case 6:
        return add(x.to(kF32).div(y.to(kF32).abs().add(1.5)));
      default:
        return add(x.add(y));
    }
  }

  void reduction() {
    const Tensor x = floating();
    if (x.dim() == 0) return;
    const int64_t d = below(x.dim());
    switch (below(7)) {
      case 0:
        return add(x.sum(d));
      case 1:
        return add(x.mean({d}, true));
      case 2:
        return add(x.amax({d}));
      case 3:
        return add(softmax(x, d));
      case 4:
        return add(x.cumsum(d));
      case 5:
        return add(x.argmax(d));
      default:
        return add(x.sum());
    }
  }

  /// Operators over the last dimensions and what is made of their results.
  void rows() {
    const Tensor x = floating();
    if (x.dim() == 0) return;
    const bool keepdim = below(2) == 0;
    switch (below(9)) {
      case 0:
        return add(softmax(x * 0.5, -1) + 1);
      case 1:
        return add(log_softmax(x, -1).neg());
      case 2: {
        const Tensor shifted = (x - x.amax({-1}, true)).exp();
        return add(shifted / shifted.sum({-1}, true));
      }
      case 3: {
        const Tensor weight = x.select(0, 0).contiguous();
        return x.dim() > 1 ? add(layer_norm(gelu(x), weight.sizes(), weight, weight).mul(x)) : void();
      }
      case 4:
        return add(rms_norm(x.tanh(), {x.size(-1)}) + x);
      case 5:
        return add(x.square().mean({-1}, keepdim).add(1e-3).rsqrt());
      case 6:
        return add(x.abs().amin({-1}, keepdim).neg());
      case 7:
        return add(where(x.gt(x.mean({-1}, true)), x, x.sum({-1}, true)));
      default:
        return add(x.ne(0).any({-1}, keepdim));
    }
  }

  void view() {
    const Tensor x = any();
    if (x.dim() == 0) return add(x.unsqueeze(0));
    const int64_t d = below(x.dim()), e = below(x.dim()), n = x.size(d);
    switch (below(8)) {
      case 0:
        return add(x.select(d, below(n)));
      case 1: {
        const int64_t start = below(n);
        return add(x.slice(d, start, start + 1 + below(n - start), 1 + below(2)));
      }
      case 2:
        return add(x.transpose(d, e));
      case 3:
        return x.dim() < 5 ? add(x.unsqueeze(below(x.dim() + 1))) : void();
      case 4:
        return x.size(d) == 1 ? add(x.expand(expanded(x, d))) : add(x.detach());
      case 5:
        return d != e ? add(x.diagonal(0, d, e)) : void();
      case 6:
        return x.is_contiguous() ? add(x.view({-1})) : add(x.flatten());
      default:
        return add(x.unfold(d, 1 + below(n), 1));
    }
  }
  static Dims expanded(const Tensor& x, int64_t d) {
    Dims s = x.sizes();
    s[static_cast<int>(d)] = 3;
    return s;
  }

  void write() {
    const Tensor x = any();
    if (x.layout().has_internal_overlap()) return;
    const Tensor y = source(x);
    switch (below(9)) {
      case 0:
        x.copy_(y);
        return;
      case 1:
        x.fill_(below(3));
        return;
      case 2:
        if (can_store(y.dtype(), x.dtype())) x.add_(y);
        return;
      case 3:
        if (can_store(y.dtype(), x.dtype())) x.mul_(y);
        return;
      case 4:
        if (x.is_floating_point()) x.sin_();
        return;
      case 5:
        if (x.is_floating_point()) x.mul_(0.5).add_(1);
        return;
      case 6:
        x.masked_fill_(y.gt(1), x.dtype() == kBool ? Operand(true) : Operand(1));
        return;
      case 7:
        if (x.is_floating_point()) x.uniform_(0, 1);
        return;
      default:
        if (x.dtype() != kBool) x.mul_(x);
        return;
    }
  }

  void other() {
    const Tensor x = any();
    switch (below(11)) {
      case 0:
        return add(x.clone());
      case 1:
        return add(zeros(sizes(), {dtype()}));
      case 2:
        return add(randn(sizes()));
      case 3:
        return x.dim() == 2 && x.is_floating_point() ? add(x.matmul(x.t())) : add(x.contiguous());
      case 4:
        return x.dim() > 0 ? add(cat({x, x}, below(x.dim()))) : void();
      case 5:
        return x.dim() > 0 ? add(x.flip({below(x.dim())})) : void();
      case 6:
        return x.dim() > 0 ? add(std::get<0>(x.sort(below(x.dim())))) : void();
      case 7: {
        const Tensor out = empty(x.sizes(), {kF64});
        add_out(out, x, 1);
        return add(out);
      }
      case 8: {
        const foreach::TensorList made = foreach::mul({x, any()}, 2);
        add(made[0]);
        return add(made[1]);
      }
      case 9: {
        const auto [rows, count] = nonzero_static_with_count(x.gt(0), 1 + below(6), 3);
        if (x.dim() > 0) add(rows);
        return add(count);
      }
      default:
        return add(tensor({1.0f, 2.0f, 3.0f}) * static_cast<double>(below(4)));
    }
  }

  std::mt19937_64 random_;
  int steps_;
  bool reads_;
  Tensors pool_;
};

/// A few tensors; some share memory, some are no whole storage.
Tensors make_arguments(uint64_t program, uint64_t elements, int64_t more) {
  std::mt19937_64 random(program);
  manual_seed(elements);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  Tensors all;
  for (int64_t n = 1 + below(4); n > 0; --n) {
    Dims s;
    for (int64_t d = below(4); d > 0; --d) s.push_back(1 + below(6));
    if (s.size() > 0 && below(3) == 0) s[s.size() - 1] = kLengths[below(std::ssize(kLengths))];
    if (s.size() > 0) s[s.size() - 1] += more;
    all.push_back((randn(s) * 3).to(kSome[below(std::ssize(kSome))]));
    const Tensor x = all.back();
    if (x.dim() < 2) continue;
    if (below(3) == 0) all.push_back(x.transpose(0, 1));
    if (below(3) == 0) all.push_back(x.select(1, below(x.size(1))));
    if (below(4) == 0) all[0] = x.slice(0, below(x.size(0)));
  }
  return all;
}

}  // namespace

RandomFunction random_function(uint64_t seed, int steps, bool reads) {
  return {[=](uint64_t elements) { return make_arguments(seed, elements, 0); },
          [=](const Tensors& arguments) { return Program(seed + 1, steps, reads, arguments).run(); },
          [=](uint64_t elements, int64_t more) { return make_arguments(seed, elements, more); }};
}

}  // namespace lorry::test
