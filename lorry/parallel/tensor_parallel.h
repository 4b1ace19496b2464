#pragma once

// Tensor parallel models: every rank computes with its part of the large parameters, on the same batch.
//
//   const parallel::ProcessGroup world = parallel::join();
//   nn::GPT model(config, {.device = world.device()}, parallel::split_over(world));
//   optim::AdamW optimizer(model.named_parameters(), {});
//   model.loss(x, y).backward();                                        // the same loss on every rank
//   parallel::step(optimizer, model, world, {.max_norm = 1});
//   optimizer.zero_grad();
//
// Each block of the forward sums its activations over the ranks twice, and the backward its gradients twice:
// Shoeybi et al., "Megatron-LM" (2019), section 3. generate/engine.h decodes with split models too.

#include <memory>

#include "lorry/nn/gpt.h"
#include "lorry/optim/optimizer.h"
#include "lorry/parallel/process_group.h"

namespace lorry::parallel {

/// How the ranks of a group split a model.
std::shared_ptr<const nn::Split> split_over(const ProcessGroup& group);

/// A step of an optimizer of all own parameters of a split model: norm, clip, unscale and skip are those of the
/// gradients of the whole model. Every rank calls it. Returns the norm as Optimizer::step does. Throws ParallelError,
/// and what Optimizer::step throws.
Tensor step(optim::Optimizer& optimizer, const nn::GPT& model, const ProcessGroup& group,
            const optim::StepOptions& options = {});

}  // namespace lorry::parallel
