#pragma once

// Random programs of tensors: leaves, ordinary operators, views of views, and writes in place through any of them. A
// program is data, so that it can be run twice: by Lorry, with a tape, and by Model, which moves hyper-dual numbers
// about in plain arrays and knows nothing of tapes. Model also decides, while a program is being made, which next step
// is allowed.
//
// What the gradient of a tensor means once its memory has been written is a matter of versions. A *version* of a tensor
// lasts from one recorded write of its memory to the next. The gradient of an owner of memory counts every later use of
// that memory, by whatever view. The gradient of a view counts the uses of the view itself, and of views made from it,
// during the version. An owner that gets other strides (transpose_) counts as written; a view that does begins a
// version without ending the last.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lorry/tensor/tensor.h"
#include "tests/autograd/hyper_dual.h"

namespace lorry::test {

enum class Action {
  // new memory
  leaf,
  constant,
  sine,
  cosine,
  tangent,
  scale,
  add,
  sub,
  mul,
  matmul,
  sum,
  cat,
  clone,
  // the same memory
  select,
  slice,
  transpose,
  unsqueeze,
  expand,
  diagonal,
  flatten,
  detach,
  // writes
  write_sine,
  write_tangent,
  write_scale,
  write_add,
  write_mul,
  write_copy,
  write_zero,
  write_addcmul,
  write_quietly,
  // other strides for the value itself
  turn,
  // gradients asked for
  hook,
  retain,
};

inline bool is_write(Action a) { return a >= Action::write_sine && a <= Action::write_quietly; }
inline bool is_view(Action a) { return a >= Action::select && a <= Action::detach; }

using Sizes = std::vector<int64_t>;
int64_t product(const Sizes& sizes);
/// Whether a tensor of `from` can be read as one of `to`.
bool broadcasts(const Sizes& from, const Sizes& to);

/// One line of a program. `x`, `y` and `z` are earlier values by number.
struct Step {
  Action action;
  int x = -1, y = -1, z = -1;
  std::vector<int64_t> numbers = {};  ///< sizes of a leaf; dimensions and positions of views
  std::vector<double> data = {};      ///< elements of a leaf, a factor, what is written quietly
};

struct Program {
  std::vector<Step> steps;
  std::vector<std::pair<int, std::vector<double>>> loss;  ///< values and their weights: the sum of their products
  bool may_be_refused = false;                            ///< something that backward may read is written afterwards
};

/// A version of a value: from step `first` on, until step `end`.
struct Version {
  int value;
  int first, end;
};

/// Runs programs on hyper-dual numbers.
class Model {
 public:
  struct Value {
    int memory;
    std::vector<int> at;  ///< addresses of the elements in row-major order
    std::vector<int64_t> sizes;
    int made;                      ///< the step that made it
    int of = -1;                   ///< the value that it is a view of
    bool cut = false;              ///< detached, or a view of what is
    std::vector<int> turned = {};  ///< the steps that gave a view other strides
    std::vector<int> place = {};   ///< of a version under test: which of its elements each element is
  };
  struct Memory {
    std::vector<HyperDual> data;
    bool grad = false, leaf = false, saved = false;
    bool row_major = false;        ///< for certain: other operators may keep the order of their operand
    std::vector<int> writes = {};  ///< recorded ones, by step
  };

  /// Directions a and b in which every leaf that requires a gradient moves; empty: none.
  struct Seeds {
    std::vector<std::vector<double>> a, b;
  };
  /// One version moves in direction a.
  struct Probe {
    Version version;
    std::vector<double> direction;
  };

  void run(const Step& step, const Seeds& seeds = {}, const Probe* probe = nullptr);
  HyperDual loss(const Program& program, const Probe* probe = nullptr);

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Memory>& memories() const { return memories_; }
  bool requires_grad(int value) const;
  bool distinct(int value) const;
  /// The version that a value has after `step`.
  Version version(int value, int step) const;
  std::vector<HyperDual> read(int value, const Probe* probe);

 private:
  int fresh(std::vector<int64_t> sizes, std::vector<HyperDual> data, bool grad);
  void leaf(const Step& step, const Seeds& seeds);
  void view(const Step& step, const Probe* probe);
  void operate(const Step& step, const Probe* probe);
  void save(int value);
  void save_operands(const Step& step);
  void write(const Step& step, const std::vector<HyperDual>& data, bool grad);
  void write_quietly(const Step& step);
  void turn(const Step& step);
  void begin_version(const Probe& probe);

  std::vector<Value> values_;
  std::vector<Memory> memories_;
  int step_ = 0;
  size_t leaves_ = 0;
};

/// A program of about `length` steps that Lorry must accept, but for may_be_refused.
Program random_program(uint32_t seed, int length);

/// What Lorry made of a program.
struct Execution {
  Execution() = default;
  Execution(Execution&&) = default;
  /// Gradients with a history are part of the graph that they belong to, which would hold itself.
  ~Execution() {
    for (const Tensor& x : values)
      if (x.defined() && x.requires_grad()) x.set_grad({});
    for (const auto& heard : hooks) heard->gradient = {};
  }

  std::vector<Tensor> values;  ///< undefined where a step made none
  std::vector<Tensor> leaves;
  Tensor loss;
  struct Heard {
    int step;
    int calls = 0;
    Tensor gradient = {};
  };
  std::vector<std::shared_ptr<Heard>> hooks;
};
Execution execute(const Program& program);

/// The program as the lines of a C++ function.
std::string to_string(const Program& program);

}  // namespace lorry::test
