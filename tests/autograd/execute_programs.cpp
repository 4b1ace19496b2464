// Runs programs in Lorry, and prints them.

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/ops.h"
#include "tests/autograd/programs.h"
#include "tests/support/tensors.h"

namespace lorry::test {

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
      case Action::leaf:
        values.push_back(leaf(dims, step.data));
        run.leaves.push_back(values.back());
        break;
      case Action::constant:
        values.push_back(lorry::test::values(dims, step.data));
        break;
      case Action::sine:
        values.push_back(x.sin());
        break;
      case Action::cosine:
        values.push_back(x.cos());
        break;
      case Action::tangent:
        values.push_back(x.tanh());
        break;
      case Action::scale:
        values.push_back(x.mul(step.data[0]));
        break;
      case Action::add:
        values.push_back(x.add(y));
        break;
      case Action::sub:
        values.push_back(x.sub(y));
        break;
      case Action::mul:
        values.push_back(x.mul(y));
        break;
      case Action::matmul:
        values.push_back(x.matmul(y));
        break;
      case Action::sum:
        values.push_back(x.sum({n[0]}));
        break;
      case Action::cat:
        values.push_back(cat({x, y}, 0));
        break;
      case Action::clone:
        values.push_back(x.clone());
        break;
      case Action::select:
        values.push_back(x.select(n[0], n[1]));
        break;
      case Action::slice:
        values.push_back(x.slice(n[0], n[1], n[2], n[3]));
        break;
      case Action::transpose:
        values.push_back(x.transpose(n[0], n[1]));
        break;
      case Action::unsqueeze:
        values.push_back(x.unsqueeze(n[0]));
        break;
      case Action::expand:
        values.push_back(x.expand(dims));
        break;
      case Action::diagonal:
        values.push_back(x.diagonal());
        break;
      case Action::flatten:
        values.push_back(x.view({-1}));
        break;
      case Action::detach:
        values.push_back(x.detach());
        break;
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
      case Action::retain:
        x.retain_grad();
        break;
      case Action::turn:
        x.transpose_(n[0], n[1]);
        break;
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
