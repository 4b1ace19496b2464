#pragma once

// Lists of parameters for step kernels on any device: odd counts and starts, any dtypes, filled from a seed, with the
// hyper blocks that move them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>

#include "lorry/formula/split.h"
#include "lorry/kernels/backend.h"
#include "lorry/kernels/optim.h"
#include "lorry/memory/allocate.h"
#include "tests/optim/compressed.h"
#include "tests/optim/rules.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {

using kernels::MasterKind;

/// What the arrays of a list hold.
struct Spec {
  DType dtype;  ///< of parameters
  MasterKind masters = MasterKind::none;
  StateType states[3] = {};
  bool wide_grads = false;  ///< gradients are f32, not of the parameters' dtype

  DType grad_dtype() const { return wide_grads ? kF32 : dtype; }

  bool f64() const { return dtype == kF64; }
  DType master_dtype() const { return masters == MasterKind::split ? kI16 : kF32; }
  bool has_master() const { return masters == MasterKind::f32 || masters == MasterKind::split; }
  DType state_dtype(int k) const { return f64() ? kF64 : dtype_of_state(states[k]); }
  std::vector<DType> dtypes(int count) const {
    std::vector<DType> dtypes{dtype, grad_dtype()};
    for (int k = 0; k < count; ++k) dtypes.push_back(state_dtype(k));
    if (size_of(dtype) == 2) dtypes.push_back(master_dtype());
    return dtypes;
  }
  /// Whether it says nothing of states that a rule has not.
  bool fits(int count) const {
    for (int k = std::max(1, count); k < 3; ++k)
      if (states[k] != states[0] && states[k] != StateType::f32) return false;
    return count > 0 || states[0] == StateType::f32;
  }
  std::string text() const {
    return fmt::format("{}, gradients {}, kept {}, states {} {} {}", dtype, grad_dtype(), static_cast<int>(masters),
                       static_cast<int>(states[0]), static_cast<int>(states[1]), static_cast<int>(states[2]));
  }
};

inline constexpr StateType kWide = StateType::f32, kHalf = StateType::bf16, kQ8 = StateType::q8;
inline constexpr Spec kSpecs[] = {{kF32},
                                  {kF64},
                                  {kF16},
                                  {kBF16},
                                  {kF16, MasterKind::f32},
                                  {kBF16, MasterKind::f32},
                                  {kBF16, MasterKind::split},
                                  {kBF16, MasterKind::stochastic},
                                  {kF32, MasterKind::none, {kQ8, kQ8, kQ8}},
                                  {kF32, MasterKind::none, {kHalf, kHalf, kHalf}},
                                  {kF32, MasterKind::none, {kWide, kQ8, kHalf}},
                                  {kF32, MasterKind::none, {kQ8, kWide}},
                                  {kF16, MasterKind::none, {kQ8, kHalf}},
                                  {kF16, MasterKind::f32, {kHalf, kQ8, kQ8}},
                                  {kBF16, MasterKind::none, {kHalf, kHalf, kHalf}},
                                  {kBF16, MasterKind::f32, {kQ8, kQ8, kQ8}},
                                  {kBF16, MasterKind::split, {kQ8, kQ8, kQ8}},
                                  {kBF16, MasterKind::stochastic, {kQ8, kQ8, kQ8}},
                                  {kBF16, MasterKind::stochastic, {kHalf, kHalf, kHalf}},
                                  {kF16, MasterKind::none, {}, true},
                                  {kBF16, MasterKind::none, {}, true},
                                  {kBF16, MasterKind::f32, {}, true},
                                  {kBF16, MasterKind::split, {}, true},
                                  {kBF16, MasterKind::stochastic, {}, true},
                                  {kBF16, MasterKind::split, {kQ8, kQ8, kQ8}, true},
                                  {kF16, MasterKind::f32, {kQ8, kHalf}, true}};

/// Floats of many magnitudes, and quickly.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float next(int magnitudes = 8) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const float share = static_cast<float>(static_cast<int64_t>(state_) >> 40) * 0x1p-23f;
    return magnitudes > 1 ? std::ldexp(share, -static_cast<int>((state_ >> 8) % static_cast<uint64_t>(magnitudes)))
                          : share;
  }

 private:
  uint64_t state_;
};

/// Memory of one array on a device; its first element lies `shift` elements into it.
class ArrayMemory {
 public:
  ArrayMemory(Device device, DType dtype, const std::vector<double>& values, int64_t shift)
      : device_(device),
        bytes_(static_cast<int64_t>(values.size()) * size_of(dtype)),
        shift_(shift * size_of(dtype)),
        memory_(memory::allocate(device, bytes_ + shift_)) {
    std::vector<char> host(static_cast<size_t>(bytes_));
    visit(dtype, [&]<class T>(Type<T>) {
      for (size_t i = 0; i < values.size(); ++i) {
        const T value = static_cast<T>(static_cast<Accumulate<T>>(values[i]));
        std::memcpy(&host[i * sizeof(T)], &value, sizeof(T));
      }
    });
    write(host);
  }
  ArrayMemory(const ArrayMemory& other, int64_t shift)
      : device_(other.device_),
        bytes_(other.bytes_),
        shift_(shift),
        memory_(memory::allocate(device_, bytes_ + shift_)) {
    write(other.read());
  }
  ~ArrayMemory() { memory::release(device_, memory_, bytes_ + shift_); }
  ArrayMemory(const ArrayMemory&) = delete;
  ArrayMemory& operator=(const ArrayMemory&) = delete;

  void* data() const { return static_cast<char*>(memory_) + shift_; }
  void write(const std::vector<char>& bytes) {
    if (bytes_ > 0) device::copy(data(), device_, bytes.data(), kCPU, bytes_, current_stream(device_));
    current_stream(device_).synchronize();
  }
  std::vector<char> read() const {
    std::vector<char> bytes(static_cast<size_t>(bytes_));
    if (bytes_ > 0) device::copy(bytes.data(), kCPU, data(), device_, bytes_, current_stream(device_));
    current_stream(device_).synchronize();
    return bytes;
  }

 private:
  Device device_;
  int64_t bytes_, shift_;
  void* memory_;
};

/// A list of parameters of a rule, its memory, and its hyper blocks: number 0 is none of the list's, 1 and 2 are, 3
/// stands still.
template <class Rule>
class Steppable {
 public:
  using Change = formula::HyperBlockChange<Rule>;
  static constexpr int kHyperBlocks = 4, kStates = Rule::kStates;
  static constexpr uint64_t kSeed = 0x0123456789abcdef;

  Steppable(Device device, const Spec& spec, const std::vector<int64_t>& counts, int variant,
            Strategy strategy = Strategy::automatic)
      : spec_(spec),
        list_(device, spec.dtypes(kStates), strategy),
        hyper_blocks_(device, kU8, std::vector<double>(kHyperBlocks * hyper_block_bytes()), 0) {
    Numbers numbers(5);
    for (size_t e = 0; e < counts.size(); ++e) {
      // One alignment, another, and several take turns.
      const int64_t shift = e % 3 == 0 ? 0 : 1 + static_cast<int64_t>(e % 4), other = e % 3 == 2 ? 0 : shift;
      kernels::ListEntry entry{.count = counts[e], .word = static_cast<uint32_t>(1 + e % 2), .number = number_of(e)};
      std::vector<double> params;
      for (int64_t i = 0; i < counts[e]; ++i) params.push_back(numbers.next(3));
      const std::vector<DType> dtypes = spec.dtypes(kStates);
      for (int k = 0; k < list_.arrays(); ++k) {
        auto& memory = arrays_.emplace_back();
        if (k == 2 + kStates && !spec.has_master()) continue;
        std::vector<double> values(static_cast<size_t>(counts[e]));
        if (k == 0 || (k == 2 + kStates && spec.masters == MasterKind::f32)) values = rounded(params, spec.dtype);
        if (k >= 2 && k < 2 + kStates) values = first_state(k - 2, counts[e], variant);
        // 8-bit states begin at multiples of four bytes.
        memory = std::make_unique<ArrayMemory>(device, dtypes[k], values,
                                               k == 1             ? other
                                               : dtypes[k] == kU8 ? 4 * shift
                                                                  : shift);
        entry.at[k] = memory->data();
      }
      list_.add(entry);
    }
    const formula::SettingsOf<Rule> first = settings_of<Rule>(variant);
    formula::SettingsOf<Rule> second = settings_of<Rule>(1 - variant);
    second.lr = 0.003;
    const formula::ProgressOf<Rule> none;
    std::vector<Change> changes;
    for (int c = 0; c < kHyperBlocks; ++c) changes.push_back({c, c != 3, c == 2 ? &second : &first, &none});
    set(changes);
  }

  const Spec& spec() const { return spec_; }
  const kernels::List& list() const { return list_; }
  void* hyper_block_data() const { return hyper_blocks_.data(); }
  /// Calls f(kernels, hyper blocks) in the type of computation.
  template <class F>
  void with_kernels(const F& f) {
    const auto& rule = kernels::backend(list_.device()).optim->rules.template of<Rule>();
    spec_.f64() ? f(rule.f64, typed<double>()) : f(rule.f32, typed<float>());
  }
  template <class C>
  formula::HyperBlock<Rule, C>* typed() const {
    return static_cast<formula::HyperBlock<Rule, C>*>(hyper_blocks_.data());
  }
  const Stream stream() const { return current_stream(list_.device()); }
  size_t arrays() const { return arrays_.size(); }
  std::vector<char> read(size_t array) const { return arrays_[array] ? arrays_[array]->read() : std::vector<char>(); }
  DType dtype(size_t array) const { return list_.dtype(static_cast<int>(array) % list_.arrays()); }

  void set(const std::vector<Change>& changes) {
    with_kernels([&](const auto& kernels, auto* blocks) { kernels.set(blocks, changes, stream()); });
  }
  void step(const double* factor = nullptr, bool zero_grads = false) {
    const kernels::StepCall call{.list = list_,
                                 .first_block = 1,
                                 .block_count = 3,
                                 .masters = spec_.masters,
                                 .zero_grads = zero_grads,
                                 .grad_factor = factor,
                                 .seed = kSeed};
    with_kernels([&](const auto& kernels, auto* blocks) { kernels.step(blocks, call, stream()); });
  }
  void advance(const double* factor) {
    with_kernels([&](const auto& kernels, auto* blocks) { kernels.advance(blocks + 1, 3, factor, stream()); });
  }

  /// `strange`: infinities, NaNs, zeros and the ends of the range among some of them.
  void new_gradients(uint64_t seed, bool strange = false) {
    constexpr double kStrange[] = {INFINITY, 0, 1e-40, NAN, -0.0, -INFINITY, 6e4, -1e-42};
    Numbers numbers(seed);
    for (size_t e = 0; e < list_.entries().size(); ++e) {
      std::vector<double> values;
      for (int64_t i = 0; i < list_.entries()[e].count; ++i) values.push_back(numbers.next(12));
      if (strange && e % 4 == 3)
        for (size_t i = 0; i < std::min<size_t>(600, values.size()); i += 5)
          values[i] = kStrange[i / 5 % std::size(kStrange)];
      ArrayMemory& grad = *arrays_[e * static_cast<size_t>(list_.arrays()) + 1];
      grad.write(ArrayMemory(kCPU, spec_.grad_dtype(), values, 0).read());
    }
  }
  /// Every third entry's gradient and every seventh's parameter go somewhere else, to another alignment.
  void move() {
    for (size_t e = 0; e < list_.entries().size(); ++e)
      for (const int k : {0, 1}) {
        if (e % (k == 0 ? 7 : 3) != 1) continue;
        auto& memory = arrays_[e * static_cast<size_t>(list_.arrays()) + static_cast<size_t>(k)];
        parked_.push_back(std::move(memory));  // so that what it had is not handed out again
        memory = std::make_unique<ArrayMemory>(*parked_.back(), size_of(list_.dtype(k)) * static_cast<int64_t>(e % 5));
        list_.move(e, k, memory->data());
      }
  }

  template <class C>
  std::vector<formula::HyperBlock<Rule, C>> hyper_blocks() const {
    std::vector<formula::HyperBlock<Rule, C>> hyper_blocks(kHyperBlocks);
    const std::vector<char> bytes = hyper_blocks_.read();
    std::memcpy(static_cast<void*>(hyper_blocks.data()), bytes.data(), kHyperBlocks * sizeof(hyper_blocks[0]));
    return hyper_blocks;
  }
  /// The doubles that hyper blocks carry, and the numbers of the next step.
  std::vector<double> hyper_block_numbers() const {
    std::vector<double> numbers;
    const auto collect = [&](const auto& hyper_blocks) {
      for (const auto& hyper_block : hyper_blocks) {
        for (const auto& progress : {hyper_block.progress, hyper_block.next}) {
          double own[formula::kProgressCount<Rule>];
          std::memcpy(own, &progress, sizeof(own));
          numbers.insert(numbers.end(), std::begin(own), std::end(own));
        }
        hyper_block.hyper.template map<double>([&](auto x) { return numbers.emplace_back(static_cast<double>(x)); });
        numbers.push_back(hyper_block.running);
      }
    };
    spec_.f64() ? collect(hyper_blocks<double>()) : collect(hyper_blocks<float>());
    return numbers;
  }

 private:
  /// Such as an optimizer's: in another order than the entries, and the largest among them.
  static uint32_t number_of(size_t entry) { return kernels::kMaxWord - 3 * static_cast<uint32_t>(entry); }
  /// A new state as it is stored: numbers, or bytes of 8-bit codes.
  std::vector<double> first_state(int k, int64_t count, int variant) const {
    const double value = Rule::first_state(k, settings_of<Rule>(variant));
    if (spec_.states[k] != StateType::q8) return std::vector<double>(static_cast<size_t>(count), value);
    std::vector<uint8_t> bytes(static_cast<size_t>(formula::quant_bytes(count)));
    store(std::vector<float>(static_cast<size_t>(count), static_cast<float>(value)), StateType::q8,
          formula::is_signed<Rule>(k), {}, bytes.data());
    return {bytes.begin(), bytes.end()};
  }
  size_t hyper_block_bytes() const {
    return spec_.f64() ? sizeof(formula::HyperBlock<Rule, double>) : sizeof(formula::HyperBlock<Rule, float>);
  }
  static std::vector<double> rounded(const std::vector<double>& values, DType dtype) {
    std::vector<double> result;
    visit_floating(dtype, [&]<class T>(Type<T>) {
      for (const double x : values)
        result.push_back(static_cast<double>(static_cast<Accumulate<T>>(T(static_cast<Accumulate<T>>(x)))));
    });
    return result;
  }

  Spec spec_;
  kernels::List list_;
  ArrayMemory hyper_blocks_;
  std::vector<std::unique_ptr<ArrayMemory>> arrays_, parked_;
};

// ---- a course of steps ----------------------------------------------------------------------------------------------

struct Doing {
  std::optional<double> factor;
  bool zero_grads;
};
/// Steps of every kind; `prepare` gives each its gradients and moves arrays and hyper blocks in between.
inline constexpr Doing kCourse[] = {{{}, false},  {1.0 / 3, true},
                                    {{}, false},  {std::numeric_limits<double>::quiet_NaN(), false},
                                    {0.5, false}, {std::numeric_limits<double>::quiet_NaN(), true},
                                    {1.0, true},  {INFINITY, false}};

template <class Rule>
void prepare(Steppable<Rule>& x, size_t step) {
  x.new_gradients(100 + step, step == 6);
  if (step == 2) x.move();
  if (step == 4) {
    auto settings = settings_of<Rule>(0);
    settings.lr = 0.02;
    x.set({{1, true, &settings, nullptr}});
  }
}

/// Equal bits, and any NaN for a NaN: a GPU's conversions drop what a NaN carries.
inline bool same_bytes(DType dtype, const std::vector<char>& a, const std::vector<char>& b) {
  if (a.size() != b.size()) return false;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return true;
  return is_floating(dtype) && visit_floating(dtype, [&]<class T>(Type<T>) {
           std::vector<T> x(a.size() / sizeof(T)), y(x.size());
           std::memcpy(static_cast<void*>(x.data()), a.data(), a.size());
           std::memcpy(static_cast<void*>(y.data()), b.data(), b.size());
           return lorry::test::same_bits(x, y);
         });
}

/// Arrays and hyper blocks of two lists alike; the first difference is a failure.
template <class Rule>
bool same(const Steppable<Rule>& a, const Steppable<Rule>& b, size_t step) {
  for (size_t i = 0; i < a.arrays(); ++i) {
    if (same_bytes(a.dtype(i), a.read(i), b.read(i))) continue;
    const auto per = static_cast<size_t>(a.list().arrays());
    ADD_FAILURE() << "step " << step << ": array " << i % per << " of entry " << i / per << " with "
                  << a.list().entries()[i / per].count << " elements";
    return false;
  }
  const bool hyper_blocks = a.hyper_block_numbers() == b.hyper_block_numbers();
  EXPECT_TRUE(hyper_blocks) << "step " << step << ": hyper blocks";
  return hyper_blocks;
}

}  // namespace lorry::optim::test
