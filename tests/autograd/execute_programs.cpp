// Runs programs in Lorry, and prints them.

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"
#include "tests/autograd/programs.h"
#include "tests/support/tensors.h"

namespace lorry::test {

namespace {

/// What a step that makes a value gives.
Tensor value_of(const Step& step, const Tensor& x, const Tensor& y) {
  const auto& n = step.numbers;
  const Dims dims(std::span<const int64_t>(n.data(), n.size()));
  switch (step.action) {
    case Action::leaf:
      return leaf(dims, step.data);
    case Action::constant:
      return values(dims, step.data);
    case Action::sine:
      return x.sin();
    case Action::cosine:
      return x.cos();
    case Action::tangent:
      return x.tanh();
    case Action::scale:
      return x.mul(step.data[0]);
    case Action::add:
      return x.add(y);
    case Action::sub:
      return x.sub(y);
    case Action::mul:
      return x.mul(y);
    case Action::matmul:
      return x.matmul(y);
    case Action::sum:
      return x.sum({n[0]});
    case Action::cat:
      return cat({x, y}, 0);
    case Action::clone:
      return x.clone();
    case Action::select:
      return x.select(n[0], n[1]);
    case Action::slice:
      return x.slice(n[0], n[1], n[2], n[3]);
    case Action::transpose:
      return x.transpose(n[0], n[1]);
    case Action::unsqueeze:
      return x.unsqueeze(n[0]);
    case Action::expand:
      return x.expand(dims);
    case Action::diagonal:
      return x.diagonal();
    case Action::flatten:
      return x.view({-1});
    default:
      return x.detach();
  }
}

void write(const Step& step, const Tensor& x, const Tensor& y, const Tensor& z) {
  switch (step.action) {
    case Action::write_sine:
      x.sin_();
      break;
    case Action::write_tangent:
      x.tanh_();
      break;
    case Action::write_scale:
      x.mul_(step.data[0]);
      break;
    case Action::write_add:
      x.add_(y);
      break;
    case Action::write_mul:
      x.mul_(y);
      break;
    case Action::write_copy:
      x.copy_(y);
      break;
    case Action::write_zero:
      x.zero_();
      break;
    case Action::write_addcmul:
      x.addcmul_(y, z);
      break;
    default:
      const NoGrad quiet;
      x.fill_(step.data[0]);
  }
}

std::shared_ptr<Execution::Heard> add_hook(const Tensor& x, int step) {
  const auto heard = std::make_shared<Execution::Heard>(Execution::Heard{step});
  x.register_hook([heard](const Tensor& g) {
    ++heard->calls;
    heard->gradient = g.detach().clone();
    return Tensor();
  });
  return heard;
}

}  // namespace

Execution execute(const Program& program) {
  Execution run;
  const auto value = [&](int number) { return number < 0 ? Tensor() : run.values[static_cast<size_t>(number)]; };
  for (int at = 0; const Step& step : program.steps) {
    const Tensor x = value(step.x), y = value(step.y), z = value(step.z);
    if (step.action < Action::write_sine) {
      run.values.push_back(value_of(step, x, y));
      if (step.action == Action::leaf) run.leaves.push_back(run.values.back());
    } else if (is_write(step.action)) {
      write(step, x, y, z);
    } else if (step.action == Action::turn) {
      x.transpose_(step.numbers[0], step.numbers[1]);
    } else if (step.action == Action::hook) {
      run.hooks.push_back(add_hook(x, at));
    } else {
      x.retain_grad();
    }
    ++at;
  }
  run.loss = zeros({}, {kF64});
  for (const auto& [number, weights] : program.loss) {
    const Tensor x = value(number);
    run.loss = run.loss.add(x.mul(values(x.sizes(), weights)).sum());
  }
  return run;
}

std::string to_string(const Program& program) {
  static constexpr const char* kNames[] = {"leaf",       "constant",      "sin",        "cos",      "tanh",
                                           "mul",        "add",           "sub",        "mul",      "matmul",
                                           "sum",        "cat",           "clone",      "select",   "slice",
                                           "transpose",  "unsqueeze",     "expand",     "diagonal", "view(-1)",
                                           "detach",     "sin_",          "tanh_",      "mul_",     "add_",
                                           "mul_",       "copy_",         "zero_",      "addcmul_", "fill_ in NoGrad",
                                           "transpose_", "register_hook", "retain_grad"};
  std::string text;
  int made = 0, at = 0;
  for (const Step& step : program.steps) {
    const bool value = step.action < Action::write_sine;
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
