#include "lorry/parallel/tensor_parallel.h"

#include <string>
#include <utility>
#include <vector>

#include "lorry/autograd/function.h"
#include "lorry/autograd/grad_mode.h"
#include "lorry/foreach/norm.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "lorry/parallel/collectives.h"
#include "lorry/parallel/joint_step.h"

namespace lorry::parallel {
namespace {

/// The sum over the ranks, whose gradient is that of each.
struct SumOverRanks : autograd::Function<SumOverRanks> {
  static Tensor forward(autograd::Context&, const Tensor& x, const ProcessGroup& group) { return all_reduce(x, group); }
  static std::vector<Tensor> backward(autograd::Context&, const std::vector<Tensor>& grads) { return {grads[0], {}}; }
};

/// The loss of logits of which each rank has some columns. The softmax of a row needs its largest logit and its sum of
/// exponentials over all ranks, and the logit of its target, which one rank has.
struct SplitCrossEntropy : autograd::Function<SplitCrossEntropy> {
  static Tensor forward(autograd::Context& context, const Tensor& logits, const Tensor& targets,
                        const ProcessGroup& group, int64_t first, int64_t columns, int64_t ignore_index) {
    const DType wide = logits.dtype() == kF64 ? kF64 : kF32;
    const Tensor ignored = targets.eq(ignore_index);
    const nn::OwnIndices own(targets.masked_fill(ignored, int64_t{0}), first, logits.size(1), columns);
    const Tensor elsewhere = own.is_own.logical_not();
    // Of a target that another rank has, column 0 stands in.
    const Tensor losses = cross_entropy(logits, own.index, {}, kNone, lorry::Reduction::none, 0, wide);
    const Tensor chosen = logits.gather(1, own.index.unsqueeze(1)).squeeze(1).to(wide), own_sum = losses + chosen;
    const Tensor most = all_reduce(own_sum, group, Reduction::maximum);
    const Tensor sums = stack({(own_sum - most).exp(), chosen.masked_fill(elsewhere, 0.0)}, 0);
    all_reduce_(sums, group);
    const Tensor logsumexp = most + sums[0].log(), number = ignored.logical_not().to(wide).sum();
    const Tensor share = ones_like(most).div(number).masked_fill(ignored, 0.0);
    context.save_for_backward({logits, own.index.masked_fill(ignored, kNone), own.is_own, logsumexp, share});
    return (logsumexp - sums[1]).masked_fill(ignored, 0.0).sum().div(number);
  }
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
    const std::vector<Tensor> saved = context.saved_tensors();
    const Tensor &logits = saved[0], &index = saved[1], &is_own = saved[2], &logsumexp = saved[3];
    const Tensor scale = saved[4].mul(grads[0]);
    const Tensor grad =
        cross_entropy_backward(scale, logits, index, {}, logsumexp, {}, kNone, lorry::Reduction::none, 0);
    // Column 0 has no target where it stood in for one.
    const Tensor column = grad.select(1, 0), softmax = (logits.select(1, 0).to(scale.dtype()) - logsumexp).exp();
    const Tensor stays = is_own.logical_or(index.eq(kNone));
    column.copy_(column.where(stays, softmax.mul(scale).to(grad.dtype())));
    return {grad, {}, {}, {}, {}, {}};
  }
  static constexpr int64_t kNone = -100;  ///< a row that does not count
};

class GroupSplit final : public nn::Split {
 public:
  explicit GroupSplit(ProcessGroup group) : group_(std::move(group)) {}
  int64_t size() const override { return group_.size(); }
  int64_t rank() const override { return group_.rank(); }
  Tensor enter(const Tensor& x) const override {
    if (size() > 1 && x.requires_grad() && mode(kGradMode))
      x.register_hook([group = group_](const Tensor& grad) { return all_reduce(grad, group); });
    return x;
  }
  Tensor leave(const Tensor& x) const override { return size() == 1 ? x : SumOverRanks::apply(x, group_); }
  Tensor gather(const Tensor& x) const override { return all_gather(x, group_); }
  Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int64_t first, int64_t columns,
                       int64_t ignore_index) const override {
    return SplitCrossEntropy::apply(logits, targets, group_, first, columns, ignore_index);
  }
  void require_same(const std::string& what, const std::string& own) const override { group_.require_same(what, own); }

 private:
  const ProcessGroup group_;
};

}  // namespace

std::shared_ptr<const nn::Split> split_over(const ProcessGroup& group) { return std::make_shared<GroupSplit>(group); }

Tensor step(optim::Optimizer& optimizer, const nn::GPT& model, const ProcessGroup& group,
            const optim::StepOptions& options) {
  const NoGrad no_grad;
  const Tensor norm = step_by_joint_norm(optimizer, options, [&] {
    std::vector<Tensor> split, whole;
    for (const auto& [name, x] : model.named_parameters())
      if (x.grad().defined()) (nn::GPT::split_rule(name) ? split : whole).push_back(x.grad());
    const Tensor sum = foreach::power_sum(split);
    all_reduce_(sum, group);
    return sum + foreach::power_sum(whole);
  });
  if (options.zero_grad) optimizer.zero_grad(false);
  return norm;
}

}  // namespace lorry::parallel
