// A run that is saved and resumed continues to the bit: parameters, optimizer, schedule and data, through the files.

#include <memory>

#include "lorry/io/checkpoint.h"
#include "lorry/io/corpus.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/rules/adam.h"
#include "lorry/optim/schedule.h"
#include "tests/io/scratch.h"
#include "tests/support/host.h"

namespace lorry::io::test {
namespace {

/// Learns, for each byte, the mean of the bytes that follow it.
class Training {
 public:
  Training(const std::filesystem::path& text, DType dtype)
      : corpus_({text}, 8, /*seed=*/3), table_(empty({256}, {.dtype = dtype})) {
    table_.fill_(0.5);
    table_.requires_grad_();
    optimizer_ = std::make_unique<optim::AdamW>(std::vector<optim::NamedTensor>{{"table", table_}},
                                                optim::AdamWOptions{.amsgrad = true});
    scheduler_ = std::make_unique<optim::LRScheduler>(
        *optimizer_, optim::Schedule{optim::Schedule::Kind::cosine, 0.05, 0.001, 5, 40});
  }

  void step() {
    const Batch batch = corpus_.train_batch(4);
    const auto x = batch.x.to_vector<int64_t>(), y = batch.y.to_vector<int64_t>();
    const auto table = table_.detach().to(kF64).to_vector<double>();
    std::vector<double> grad(256);
    for (size_t i = 0; i < x.size(); ++i)
      grad[static_cast<size_t>(x[i])] += table[static_cast<size_t>(x[i])] - static_cast<double>(y[i]) / 255;
    table_.set_grad(from_data(grad).to(table_.dtype()));
    optim::clip_grad_norm_({table_}, 1.0);
    optimizer_->step();
    scheduler_->step();
  }

  Checkpoint save() const {
    Checkpoint c{{{"table", table_.detach()}}, optimizer_->state_dict(), {}};
    c.state.step = scheduler_->steps_done();
    c.state.data_position = corpus_.position();
    return c;
  }

  void resume(const Checkpoint& c) {
    restore({{"table", table_}}, c.model, "resume");
    optimizer_->load_state_dict(c.optimizer);
    scheduler_->seek(c.state.step);
    corpus_.seek(c.state.data_position);
  }

  std::string bits() const { return lorry::test::bytes_of(table_); }

 private:
  Corpus corpus_;
  Tensor table_;
  std::unique_ptr<optim::AdamW> optimizer_;
  std::unique_ptr<optim::LRScheduler> scheduler_;
};

TEST(Resume, a_run_saved_at_any_step_continues_to_the_bit) {
  constexpr int kSteps = 24;
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>((i * i) % 256);
  put(scratch / "text", text);
  for (const DType dtype : {kF32, kBF16}) {
    Training straight(scratch / "text", dtype);
    std::vector<std::string> bits;
    for (int step = 0; step < kSteps; ++step) {
      save_checkpoint(scratch / fmt::format("{}", step), straight.save());
      straight.step();
      bits.push_back(straight.bits());
    }
    for (const int from : {0, 1, 7, kSteps - 1}) {
      Training resumed(scratch / "text", dtype);
      resumed.resume(load_checkpoint(scratch / fmt::format("{}", from)));
      for (int step = from; step < kSteps; ++step) {
        resumed.step();
        ASSERT_EQ(resumed.bits(), bits[step]) << name(dtype) << " from step " << from << " at step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace lorry::io::test
