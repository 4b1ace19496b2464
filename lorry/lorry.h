#pragma once

// All of Lorry that users see, in one include: tensors and operators, gradients, lists of tensors, compiled functions,
// graphs, optimizers, layers and models, text generation, files, devices, streams and threads, and a timer. Kernels,
// plans and the nodes of the tape stay behind it. A program that is built often includes the rooms that it uses
// instead.

#include "lorry/autograd/checkpoint.h"
#include "lorry/autograd/engine.h"
#include "lorry/autograd/function.h"
#include "lorry/autograd/grad_mode.h"
#include "lorry/base/events.h"
#include "lorry/compile/compile.h"
#include "lorry/device/cpu/team.h"
#include "lorry/device/device.h"
#include "lorry/foreach/foreach.h"
#include "lorry/foreach/norm.h"
#include "lorry/generate/engine.h"
#include "lorry/io/checkpoint.h"
#include "lorry/io/corpus.h"
#include "lorry/io/safetensors.h"
#include "lorry/memory/memory.h"
#include "lorry/nn/containers.h"
#include "lorry/nn/gpt.h"
#include "lorry/nn/layers.h"
#include "lorry/nn/module.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/custom.h"
#include "lorry/optim/loss_scaler.h"
#include "lorry/optim/optimizers.h"
#include "lorry/optim/schedule.h"
#include "lorry/profile/benchmark.h"
#include "lorry/profile/lossy.h"
#include "lorry/replay/bucket_options.h"
#include "lorry/replay/buckets.h"
#include "lorry/replay/graph.h"
#include "lorry/tensor/dlpack.h"
