// Sharded optimizers beside the same training without shards, and their checkpoints, by every rank.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lorry/io/checkpoint.h"
#include "lorry/optim/optimizers.h"
#include "lorry/parallel/bucket_plan.h"
#include "lorry/parallel/checkpoint.h"
#include "tests/parallel/ranks.h"

namespace lorry::parallel {
namespace {

/// Parameters of sizes that fall on both sides of the borders of shards, one of them too small for more than one rank.
struct Net : nn::Layer<Net> {
  Net() { add("up", up), add("norm", norm), add("down", down); }
  Tensor forward(const Tensor& x) const { return down(norm(gelu(up(x)))); }
  nn::Linear up{40, 70};
  nn::LayerNorm norm{70};
  nn::Linear down{70, 3};
};

constexpr int64_t kRows = 24;  // of a batch, for any of 1, 2, 3 and 4 ranks

std::unique_ptr<Net> new_net(Device device, DType dtype = kF32) {
  manual_seed(7);
  auto net = std::make_unique<Net>();
  net->to(device);
  net->to(dtype);
  return net;
}

/// The loss of this rank's rows of a step's batch.
Tensor loss_of(const Net& net, int step) {
  const Tensor& weight = net.up.weight;
  Generator generator(static_cast<uint64_t>(100 + step));
  const int64_t rows = kRows / world().size();
  const Tensor x = randn({kRows, 40}, {}, &generator).narrow(0, world().rank() * rows, rows);
  const Tensor y = x.slice(1, 0, 3).mul(2).add(1);
  return net(x.to(weight.device()).to(weight.dtype())).to(kF32).sub(y.to(weight.device())).square().mean();
}

struct Choice {
  std::string optimizer = "adamw";
  DType dtype = kF32;
  optim::Memory memory = {};
  double max_norm = 0.5;
  int64_t bucket_bytes = 4000;
  optim::Execution execution = optim::Execution::automatic;
};

/// A training, with shards or without.
struct Training {
  Training(const Choice& how, bool shard, Device device)
      : choice(how),
        net(new_net(device, how.dtype)),
        ranks(net->named_parameters(), world(), {.bucket_bytes = how.bucket_bytes, .shard = shard}),
        optimizer(optim::make_optimizer(how.optimizer, ranks.own_parts(net->named_parameters()), 1e-2, how.execution,
                                        how.memory)) {}
  /// The norm of the gradients.
  double step(int number) {
    (loss_of(*net, number) * ranks.share()).backward();
    const Tensor norm = ranks.step(*optimizer, {.max_norm = choice.max_norm});
    ranks.zero_grad();
    return norm.defined() ? norm.item<double>() : 0;
  }
  void steps(int from, int to) {
    for (int i = from; i < to; ++i) step(i);
  }

  const Choice choice;
  std::unique_ptr<Net> net;
  DataParallel ranks;
  std::unique_ptr<optim::Optimizer> optimizer;
};

/// How far two trainings are apart. Every rank has the same parameters.
double difference(const Training& a, const Training& b) {
  double most = 0;
  for (const auto& [name, x] : a.net->named_parameters()) {
    const Tensor y = b.net->state_dict().at(name);
    most = std::max(most, x.to(kF64).sub(y.to(kF64)).abs().max().item<double>());
    const Tensor all = all_gather(x.detach(), world());
    for (int r = 0; r < world().size(); ++r)
      EXPECT_TRUE(all.select(0, r).equal(x.detach())) << name << " is not the same on rank " << r;
  }
  return most;
}

/// Whether a training has the same bits with shards and without: not where sums come in another order, nor where a
/// part of a parameter draws other random bits than its whole.
bool is_exact(const Choice& how) {
  const bool draws = how.memory.masters == optim::Masters::stochastic || how.memory.states[0] == StateType::bf16;
  return world().size() == 1 || (world().is_reproducible() && !draws);
}

constexpr int kSteps = 4;

void expect_same_training(const Choice& how, Device device, double tolerance) {
  Training whole(how, false, device), sharded(how, true, device);
  for (int step = 0; step < kSteps; ++step) {
    const double a = whole.step(step), b = sharded.step(step);
    const double near = how.dtype == kF32 ? 1e-4 : 1e-2 * a;
    EXPECT_NEAR(a, b, is_exact(how) ? 0 : near) << "norm of step " << step;
  }
  EXPECT_LE(difference(sharded, whole), is_exact(how) ? 0 : tolerance)
      << how.optimizer << " of " << name(how.dtype) << ", masters " << name(how.memory.masters) << ", states "
      << name(how.memory.states);
}

TEST(Shard, every_rule_steps_as_it_does_unsharded) {
  for (const Device device : devices())
    for (const std::string& name : optim::optimizer_names())
      expect_same_training({.optimizer = name}, device, name == "sgd" ? 1e-5 : 2e-3);
}

TEST(Shard, with_every_choice_of_states_and_masters) {
  using optim::Masters, optim::Memory;
  for (const Device device : devices()) {
    for (const StateType states : {StateType::f32, StateType::bf16, StateType::q8}) {
      expect_same_training({.memory = {.states = states, .seed = 3}}, device, 1e-2);
      for (const Masters masters : {Masters::none, Masters::f32, Masters::split, Masters::stochastic})
        expect_same_training({.dtype = kBF16, .memory = {.masters = masters, .states = states, .seed = 3}}, device,
                             0.1);
    }
    expect_same_training({.dtype = kF16, .memory = {.masters = Masters::f32}}, device, 0.1);
    expect_same_training({.dtype = kF64}, device, 1e-2);
    expect_same_training({.memory = {.placement = optim::Placement::pinned}}, device, 2e-3);
  }
}

TEST(Shard, with_any_buckets_and_executions) {
  for (const int64_t bytes : {int64_t{1}, int64_t{3000}, int64_t{25} << 20})
    expect_same_training({.bucket_bytes = bytes}, kCPU, 2e-3);
  for (const auto execution : {optim::Execution::loop, optim::Execution::foreach, optim::Execution::fused})
    expect_same_training({.execution = execution}, kCPU, 2e-3);
}

TEST(Shard, without_a_clip) {
  Choice how;
  how.max_norm = std::numeric_limits<double>::infinity();
  for (const Device device : devices()) expect_same_training(how, device, 2e-3);
}

TEST(Shard, a_rank_has_an_equal_part_of_the_states) {
  Training sharded({.bucket_bytes = 1 << 20}, true, kCPU);
  sharded.step(0);
  int64_t own = 0, whole = 0;
  for (const auto& [key, x] : sharded.optimizer->state_dict())
    if (key.ends_with("exp_avg")) own += x.numel();
  for (const Tensor& x : sharded.net->parameters()) whole += x.numel();
  const Tensor sum = full({}, own, {.dtype = kI64});
  all_reduce_(sum, world());
  EXPECT_EQ(sum.item<int64_t>(), whole) << "every element has one owner";
  EXPECT_LE(own, whole / world().size() + kBucketAlignment * 6);
}

TEST(Shard, more_ranks_than_elements) {
  const Tensor x = full({3}, 2.0).requires_grad_();
  DataParallel ranks({{"x", x}}, world(), {.shard = true});
  optim::SGD optimizer(ranks.own_parts({{"x", x}}), {.lr = 0.5});
  for (int step = 0; step < 3; ++step) {
    (x.sum() * ranks.share()).backward();
    EXPECT_NEAR(ranks.step(optimizer, {.max_norm = 100}).item<double>(), std::sqrt(3.0), 1e-6);
    ranks.zero_grad();
  }
  EXPECT_TRUE(x.detach().equal(full({3}, 0.5))) << x;
}

/// Steps matrices and the rest by optimizers of their own.
struct TwoOptimizers {
  TwoOptimizers(bool shard) : net(new_net(kCPU)), ranks(net->named_parameters(), world(), {.shard = shard}) {
    std::vector<optim::NamedTensor> parts[2];
    for (const auto& named : net->named_parameters()) parts[named.second.dim() >= 2].push_back(named);
    for (const auto& part : parts)
      optimizers.push_back(std::make_unique<optim::SGD>(ranks.own_parts(part), optim::SGDOptions{.lr = 0.1}));
  }
  void step(int number, bool zeros) {
    (loss_of(*net, number) * ranks.share()).backward();
    for (const auto& optimizer : optimizers) ranks.step(*optimizer, {.max_norm = 1, .zero_grad = zeros});
    if (!zeros) ranks.zero_grad();
  }
  std::unique_ptr<Net> net;
  DataParallel ranks;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
};

TEST(Shard, several_optimizers_step_by_one_backward) {
  for (const bool zeros : {false, true}) {
    TwoOptimizers whole(false), sharded(true);
    for (int step = 0; step < kSteps; ++step) whole.step(step, zeros), sharded.step(step, zeros);
    for (const auto& [name, x] : whole.net->named_parameters())
      EXPECT_LE(sharded.net->state_dict().at(name).sub(x).abs().max().item<float>(), 1e-5) << name;
  }
}

TEST(Shard, a_step_that_is_given_up_leaves_nothing) {
  for (const bool shard : {false, true}) {
    Training expected({}, shard, kCPU), got({}, shard, kCPU);
    expected.steps(0, kSteps);
    for (int step = 0; step < kSteps; ++step) {
      (loss_of(*got.net, 77) * 1000).backward();  // parts of it are on their way
      got.ranks.zero_grad();
      got.step(step);
    }
    EXPECT_LE(difference(got, expected), world().size() > 2 ? 2e-3 : 0) << "shard " << shard;
  }
}

TEST(Shard, a_parameter_that_is_frozen_later_or_moved_is_no_crash) {
  for (const bool shard : {false, true}) {
    Training training({}, shard, kCPU);
    training.step(0);
    training.net->to(kF64);
    if (shard) {
      (training.net->up.weight.sum() * 0).backward();
      EXPECT_THROW(training.ranks.step(*training.optimizer), ValueError);
    }
    training.net->down.bias.requires_grad_(false);
  }
}

TEST(Shard, a_step_with_infinities_is_left_out_by_all_ranks) {
  Training sharded({}, true, kCPU);
  sharded.step(0);
  const Tensor before = sharded.net->up.weight.detach().clone();
  const double bad = world().rank() == 0 ? INFINITY : 1.0;
  (loss_of(*sharded.net, 1) * bad).backward();
  sharded.ranks.step(*sharded.optimizer, {.skip_nonfinite = true});
  sharded.ranks.zero_grad();
  EXPECT_TRUE(sharded.net->up.weight.detach().equal(before));
  EXPECT_GT(sharded.step(2), 0);
  EXPECT_FALSE(sharded.net->up.weight.detach().equal(before));
}

TEST(Shard, gradients_of_16_bits_are_summed_in_f32_where_asked) {
  const auto net = new_net(kCPU, kBF16);
  DataParallel ranks(net->named_parameters(), world(), {.reduce_in = kF32, .shard = true});
  optim::SGD optimizer(ranks.own_parts(net->named_parameters()), {.lr = 1e-2});
  const double first = loss_of(*net, 0).item<double>();
  for (int step = 0; step < 20; ++step) {
    (loss_of(*net, 0) * ranks.share()).backward();
    ranks.step(optimizer);
    ranks.zero_grad();
  }
  EXPECT_LT(loss_of(*net, 0).item<double>(), first);
}

TEST(Shard, parameters_are_waited_for_where_they_are_used) {
  for (const Device device : devices()) {
    Training sharded({.bucket_bytes = 1}, true, device), whole({.bucket_bytes = 1}, false, device);
    for (int step = 0; step < 3; ++step) whole.step(step);
    for (int step = 0; step < 3; ++step) sharded.step(step);
    // Read through a view, by the host, and written by an operator.
    EXPECT_NEAR(sharded.net->down.bias.select(0, 1).item<float>(), whole.net->down.bias.select(0, 1).item<float>(),
                1e-3);
    EXPECT_NEAR(sharded.net->up.weight.t().sum().item<float>(), whole.net->up.weight.t().sum().item<float>(), 1e-1);
    sharded.step(3);
    {
      const NoGrad no_grad;
      sharded.net->norm.weight.fill_(3);
    }
    sharded.ranks.wait();
    EXPECT_TRUE(sharded.net->norm.weight.detach().equal(full({70}, 3.0, {.device = device}))) << "the write came last";
  }
}

TEST(Shard, compiled_functions_and_replays_wait_for_parameters) {
  for (const Device device : devices()) {
    Training sharded({.bucket_bytes = 1}, true, device);
    const NoGrad no_grad;
    const Net& net = *sharded.net;
    const Tensor x = ones({4, 40}, {.device = device});
    const auto scaled = [&](const Tensor& input) { return gelu(input * net.norm.weight + net.norm.bias) * 2; };
    auto compiled = compile(scaled, {.wait = true});
    const Tensor row = ones({4, 70}, {.device = device});
    for (int i = 0; i < 3; ++i) compiled(row);
    replay::Graph graph([&] { return std::vector<Tensor>{net(x)}; }, {.device = device});
    for (int step = 0; step < 5; ++step) {
      {
        const EnableGrad recording;
        sharded.step(step);
      }
      const Tensor by_compiled = compiled(row).clone();
      graph.replay();
      const Tensor by_graph = graph.outputs()[0].clone(), expected = net(x);
      EXPECT_TRUE(by_compiled.allclose(scaled(row), 1e-4, 1e-5)) << "step " << step;
      EXPECT_TRUE(by_graph.allclose(expected, 1e-4, 1e-5)) << "step " << step;
    }
    // Leaves that share a storage are no single graph: the operators are deferred, and fused in segments.
    EXPECT_GT(compiled.stats().deferred_calls, 4) << compiled.explain();
  }
}

TEST(Shard, refuses_what_it_cannot_do) {
  const Tensor x = ones({4}).requires_grad_(), number = ones({}).requires_grad_(), other = ones({4}).requires_grad_();
  EXPECT_THROW(DataParallel({{"x", x}, {"n", number}}, world(), {.shard = true}), ValueError);
  DataParallel ranks({{"x", x}}, world(), {.shard = true});
  EXPECT_THROW(ranks.own_parts({{"y", x}}), ValueError);
  EXPECT_THROW(ranks.own_parts({{"x", other}}), ValueError);
  optim::SGD not_own({{"x", other}}, {.lr = 0.5});
  x.sum().backward();
  other.sum().backward();
  EXPECT_THROW(ranks.step(not_own, {.max_norm = 1}), ValueError);
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

/// A folder that all ranks have.
class SharedFolder {
 public:
  SharedFolder()
      : path_(world().exchange(world().rank() == 0 ? (std::filesystem::temp_directory_path() /
                                                      fmt::format("lorry-shard-{}", static_cast<int64_t>(::getpid())))
                                                         .string()
                                                   : "")[0]) {
    if (world().rank() == 0) std::filesystem::create_directories(path_);
    barrier(world());
  }
  ~SharedFolder() {
    barrier(world());
    if (world().rank() == 0) std::filesystem::remove_all(path_);
  }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  const std::filesystem::path path_;
};

io::Checkpoint checkpoint_of(const Training& x) {
  return {x.net->state_dict(), x.optimizer->state_dict(), {.step = kSteps}};
}

TEST(ShardedCheckpoint, is_that_of_one_process_and_resumes) {
  const SharedFolder folder;
  for (const Device device : devices())
    for (const StateType states : {StateType::f32, StateType::q8}) {
      const Choice how{.dtype = kBF16, .memory = {.masters = optim::Masters::f32, .states = states}};
      Training whole(how, false, device), sharded(how, true, device);
      whole.steps(0, kSteps), sharded.steps(0, kSteps);
      save_checkpoint(folder / "sharded", checkpoint_of(sharded), sharded.ranks);
      if (world().rank() == 0) io::save_checkpoint(folder / "whole", checkpoint_of(whole));
      barrier(world());
      const io::Checkpoint loaded = io::load_checkpoint(folder / "sharded"),
                           other = io::load_checkpoint(folder / "whole");
      for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
        EXPECT_TRUE(!is_exact(how) || bytes_of(folder / "sharded" / file) == bytes_of(folder / "whole" / file)) << file;

      // Either goes on as the other would have.
      Training again(how, true, device), without(how, false, device);
      again.net->load_state_dict(loaded.model), without.net->load_state_dict(loaded.model);
      again.optimizer->load_state_dict(again.ranks.own_state(loaded.optimizer));
      without.optimizer->load_state_dict(without.ranks.own_state(loaded.optimizer));
      again.steps(kSteps, 2 * kSteps), without.steps(kSteps, 2 * kSteps), sharded.steps(kSteps, 2 * kSteps);
      EXPECT_EQ(difference(again, sharded), 0) << "to the bit";
      EXPECT_LE(difference(without, sharded), is_exact(how) ? 0 : 0.1);
    }
}

TEST(ShardedCheckpoint, a_state_of_another_shape_is_refused) {
  Training sharded({}, true, kCPU);
  EXPECT_THROW(sharded.ranks.own_state({{"up.weight.exp_avg", ones({3})}}), ShapeError);
  EXPECT_EQ(sharded.ranks.own_state({{"other.exp_avg", ones({3})}}).at("other.exp_avg").numel(), 3)
      << "what is of no parameter stays, for the optimizer to refuse";
}

TEST(ShardedCheckpoint, a_rank_that_cannot_write_ends_it_on_all_ranks_and_leaves_the_old_one) {
  const SharedFolder folder;
  Training sharded({}, true, kCPU);
  sharded.step(0);
  const io::Checkpoint good = checkpoint_of(sharded);
  save_checkpoint(folder / "run", good, sharded.ranks);
  const std::string before = bytes_of(folder / "run" / "model.safetensors");
  sharded.step(1);

  io::Checkpoint bad = checkpoint_of(sharded);
  bad.state.config["x"] = std::nan("");  // which no file can hold: rank 0 throws at the beginning
  EXPECT_THROW(save_checkpoint(folder / "run", bad, sharded.ranks), Error);
  bad = checkpoint_of(sharded);
  if (world().rank() == world().size() - 1) bad.model.erase("up.bias");  // the file is another one than rank 0's
  if (world().size() > 1) {
    EXPECT_THROW(save_checkpoint(folder / "run", bad, sharded.ranks), IoError);
  }
  barrier(world());
  EXPECT_EQ(bytes_of(folder / "run" / "model.safetensors"), before);
  save_checkpoint(folder / "run", checkpoint_of(sharded), sharded.ranks);
  EXPECT_NE(bytes_of(folder / "run" / "model.safetensors"), before) << "and the next one is saved";
}

// ---- the plan -------------------------------------------------------------------------------------------------------

TEST(BucketPlan, parts_are_equal_and_places_are_aligned) {
  const std::vector<Tensor> parameters{ones({1000}), ones({3}),    ones({300}, {.dtype = kBF16}),
                                       ones({0}),    ones({5000}), ones({257})};
  const std::vector<size_t> order{5, 4, 3, 2, 1, 0};
  for (const int64_t parts : {1, 2, 3, 4, 7})
    for (const int64_t bytes : {1, 2000, 1 << 20}) {
      const BucketPlan plan = plan_buckets(parameters, order, bytes, parts);
      ASSERT_EQ(plan.memories.size(), 2u);
      std::vector<int64_t> ends(2, 0);
      for (const BucketPlan::Bucket& x : plan.buckets) {
        EXPECT_EQ(x.begin, ends[x.memory]) << "buckets of a memory follow each other";
        EXPECT_EQ((x.end - x.begin) % (parts * kBucketAlignment), 0);
        ends[x.memory] = x.end;
      }
      for (size_t m = 0; m < 2; ++m) EXPECT_EQ(plan.memories[m].elements, ends[m]);
      for (size_t i = 0; i < parameters.size(); ++i) {
        const BucketPlan::Place& place = plan.places[i];
        const BucketPlan::Bucket& bucket = plan.buckets[place.bucket];
        EXPECT_EQ(place.offset % kBucketAlignment, 0);
        EXPECT_EQ(plan.memories[place.memory].dtype, parameters[i].dtype());
        EXPECT_TRUE(place.offset >= bucket.begin && place.offset + parameters[i].numel() <= bucket.end);
        for (size_t k = 0; k < i; ++k) {
          const BucketPlan::Place& other = plan.places[k];
          EXPECT_TRUE(place.memory != other.memory || place.offset >= other.offset + parameters[k].numel() ||
                      other.offset >= place.offset + parameters[i].numel())
              << "no two overlap";
        }
      }
    }
}

}  // namespace
}  // namespace lorry::parallel
