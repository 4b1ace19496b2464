// Trains a little with others, and lets one rank go wrong where it is told to: tests/parallel/drill_test.py.
//   drill FAULT PHASE RANK FOLDER [shard]
// Exit status 0: all steps done; 1: an error, which is one line on standard error.

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "lorry/io/checkpoint.h"
#include "lorry/lorry.h"
#include "lorry/parallel/checkpoint.h"
#include "lorry/parallel/data_parallel.h"

namespace {

using namespace lorry;
namespace fs = std::filesystem;

std::string g_fault, g_phase;
int g_rank = 0;
constexpr int64_t kFaultyStep = 3, kSteps = 8;

/// Goes wrong if this is the phase of the fault. A rank that leaves returns true.
bool goes_wrong(const std::string& phase, int rank) {
  if (phase != g_phase || rank != g_rank) return false;
  if (g_fault == "killed") raise(SIGKILL);
  if (g_fault == "stopped") raise(SIGSTOP);
  if (g_fault == "memory") throw OutOfMemory("empty: no memory for [1 << 40] f32; this is a drill");
  if (g_fault == "throws") throw std::runtime_error("this is a drill");
  if (g_fault == "sleeps") std::this_thread::sleep_for(std::chrono::hours(1));
  return g_fault == "leaves";
}

/// What the ranks disagree in, once.
void disagree(const parallel::ProcessGroup& world, Device device) {
  const bool other = world.rank() == g_rank;
  Tensor x = ones({other && g_fault == "shapes" ? 5 : 4}, {.dtype = other && g_fault == "dtypes" ? kF64 : kF32});
  x = x.to(device);
  if (g_fault == "seeds") world.require_same("the seed", other ? "8" : "7");
  if (g_fault == "order" && other)
    parallel::broadcast_(x, world);
  else
    parallel::all_reduce_(x, world);
  if (g_fault == "order" && !other) parallel::broadcast_(x, world);
  if (g_fault == "count" && !other) parallel::all_reduce_(x, world);
}

/// Saves, by all ranks where they have shards and else by rank 0, and looks at what was saved.
int save(const char* folder, int64_t step, const nn::Linear& layer, const optim::Optimizer& optimizer,
         parallel::DataParallel& ranks, const nn::Linear& alone) {
  const fs::path path = fs::path(folder) / "checkpoint";
  const io::Checkpoint checkpoint{layer.state_dict(), optimizer.state_dict(), {.step = step}};
  if (ranks.is_sharded())
    parallel::save_checkpoint(path, checkpoint, ranks);
  else if (ranks.group().rank() == 0)
    io::save_checkpoint(path, checkpoint);
  if (ranks.group().rank() != 0) return 0;
  const Tensor saved = io::load_checkpoint(path).model.at("weight");
  if (saved.sub(alone.weight.detach().cpu()).abs().max().item<float>() <= 1e-4f) return 0;
  std::fprintf(stderr, "garbage: saved in step %d\n", static_cast<int>(step));
  return 3;
}

int run(const char* folder, bool shard) {
  if (goes_wrong("start-up", parallel::launched().rank)) return 0;
  const parallel::ProcessGroup world = parallel::join();
  const char* const where = std::getenv("LORRY_TEST_DEVICE");
  const Device device = where != nullptr && std::string(where) == "cuda" ? world.device() : kCPU;
  nn::Linear layer(64, 64);
  layer.to(device);
  parallel::DataParallel ranks(layer.named_parameters(), world, {.shard = shard});
  optim::AdamW optimizer(ranks.own_parts(layer.named_parameters()), {});
  // All ranks have the same batch, so a model of its own that each trains beside it has the same loss.
  nn::Linear alone(64, 64);
  alone.to(device);
  alone.load_state_dict(layer.state_dict());
  optim::AdamW own_optimizer(alone.named_parameters(), {});
  for (int64_t step = 0; step < kSteps; ++step) {
    world.note_step(step);
    const auto at = [&](const char* phase) { return step == kFaultyStep && goes_wrong(phase, world.rank()); };
    if (at("forward")) return 0;
    Tensor loss = layer(ones({8, 64}, {.device = device})).square().mean();
    if (at("backward")) return 0;
    (loss * ranks.share()).backward();
    if (step == kFaultyStep && g_phase == "calls") disagree(world, device);
    if (at("reduction")) return 0;
    ranks.finish();
    if (at("step")) return 0;
    ranks.step(optimizer, {.max_norm = 1e9});
    ranks.zero_grad();
    const float got = loss.item<float>();
    const Tensor own_loss = alone(ones({8, 64}, {.device = device})).square().mean();
    own_loss.backward();
    own_optimizer.step();
    own_optimizer.zero_grad();
    if (!(std::abs(got - own_loss.item<float>()) <= 1e-4f)) {
      std::fprintf(stderr, "garbage: a loss of %g\n", static_cast<double>(got));
      return 3;
    }
    if (step % 2 == 1) {
      if (at("checkpoint")) return 0;
      if (const int status = save(folder, step, layer, optimizer, ranks, alone)) return status;
    }
    parallel::barrier(world);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  g_fault = argv[1], g_phase = argv[2], g_rank = std::atoi(argv[3]);
  try {
    return run(argv[4], argc == 6);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lorry: %s\n", error.what());
    return 1;
  }
}
