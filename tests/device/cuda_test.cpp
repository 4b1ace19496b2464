// What is particular to a GPU: streams, events, transfers, and errors that arrive late.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lorry/base/events.h"
#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"
#include "tests/support/message.h"

namespace lorry::test {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::available(DeviceType::cuda)) GTEST_SKIP() << device::why_absent(DeviceType::cuda);
  }
  static Tensor on_gpu(const Tensor& x) { return x.to(kGpu); }
};

/// The events while it lives.
class Heard {
 public:
  Heard()
      : before_(events::set_handler(
            [this](const events::Event& event) { heard_.emplace_back(event.kind, event.source); })) {}
  ~Heard() { events::set_handler(before_); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  int64_t count(events::Kind event) const { return std::ranges::count(heard_, event, &KindAndSource::first); }
  int64_t count(events::Kind event, const char* source) const {
    return std::ranges::count(heard_, KindAndSource(event, source));
  }

 private:
  using KindAndSource = std::pair<events::Kind, std::string>;
  std::vector<KindAndSource> heard_;
  events::Handler before_;
};

TEST(Devices, those_that_do_not_exist_are_refused_by_name) {
  EXPECT_THROW(empty({2}, {.device = {DeviceType::cuda, 99}}), DeviceError);
  EXPECT_THROW(ones({2}).to(Device{DeviceType::cuda, 99}), DeviceError);
  EXPECT_THROW(OwnedStream(Device{DeviceType::cuda, 99}), DeviceError);
  EXPECT_THROW(device::synchronize({DeviceType::cuda, 99}), DeviceError);
  EXPECT_THROW(StreamScope(Stream{{DeviceType::cuda, 99}}), DeviceError);
  EXPECT_THROW(StreamScope(Stream{{DeviceType::cuda, -1}}), DeviceError);
  for (const int index : {-1, 99, 256, 1 << 30})
    EXPECT_THROW(ones({2}, {.device = kCPU}).cuda(index), DeviceError) << index;
  float memory[2] = {1, 2};
  EXPECT_THROW(from_blob(memory, {2}, {.device = {DeviceType::cuda, 99}}), DeviceError);
  const std::string said = message<DeviceError>([] { empty({2}, {.device = {DeviceType::cuda, 99}}); });
  EXPECT_NE(said.find("cuda"), std::string::npos) << said;
}

TEST(Devices, on_the_cpu_streams_and_events_are_always_done) {
  const OwnedStream stream(kCPU);
  const StreamScope scope(stream);
  const Event event(kCPU);
  event.record(stream);
  EXPECT_TRUE(event.done());
  event.block(stream);
  event.synchronize();
  EXPECT_EQ(device::count(DeviceType::cpu), 1);
  EXPECT_GT(device::info(kCPU).memory_bytes, 0);
}

TEST(Devices, no_event_says_that_the_cpu_waits) {
  const Heard heard;
  current_stream(kCPU).synchronize();
  device::synchronize(kCPU);
  Event(kCPU).synchronize();
  EXPECT_EQ(ones({2}, {.device = kCPU}).sum().item<float>(), 2);
  EXPECT_EQ(heard.count(events::Kind::synchronisation), 0);
}

TEST_F(Cuda, an_event_says_that_the_host_waits) {
  const Tensor x = ones({64}, {.device = kGpu});
  device::synchronize(kGpu);
  const Heard heard;
  const Tensor sum = x.add(1).sum();
  EXPECT_EQ(heard.count(events::Kind::synchronisation), 0);
  EXPECT_EQ(sum.item<float>(), 128);
  EXPECT_EQ(heard.count(events::Kind::synchronisation, "item"), 1);
  current_stream(kGpu).synchronize();
  device::synchronize(kGpu);
  EXPECT_EQ(heard.count(events::Kind::synchronisation, "synchronize"), 2);
  x.nonzero();
  EXPECT_EQ(heard.count(events::Kind::synchronisation, "nonzero"), 1);
}

TEST_F(Cuda, an_event_says_that_the_stream_is_done) {
  const Tensor busy = zeros({64 << 20}, {.device = kGpu});
  const Event done(kGpu);
  enum class How { device, stream, event };
  for (const How how : {How::device, How::stream, How::event}) {
    for (int i = 0; i < 20; ++i) busy.add_(1);
    done.record(current_stream(kGpu));
    int events_heard = 0;
    const events::Handler before = events::set_handler([&](const events::Event& event) {
      ++events_heard;
      EXPECT_TRUE(done.done()) << "emitted before the wait";
      EXPECT_GT(event.took.count(), 0);
    });
    switch (how) {
      case How::device:
        device::synchronize(kGpu);
        break;
      case How::stream:
        current_stream(kGpu).synchronize();
        break;
      case How::event:
        done.synchronize();
        done.synchronize();  // nothing left to wait for
        break;
    }
    events::set_handler(before);
    EXPECT_EQ(events_heard, 1);
  }
}

TEST_F(Cuda, pageable_memory_may_change_when_its_copy_returns) {
  const Tensor busy = zeros({64 << 20}, {.device = kGpu});
  for (const int64_t n : {3, 70'000, 5 << 20}) {
    const Tensor x = ones({n}, {.device = kCPU});
    for (int i = 0; i < 20; ++i) busy.add_(1);
    const Tensor there = x.to(kGpu);
    x.fill_(2);
    EXPECT_EQ(there.min().item<float>(), 1) << n;
    EXPECT_EQ(there.max().item<float>(), 1) << n;
  }
}

TEST_F(Cuda, tensors_of_every_dtype_and_layout_come_back_as_they_went) {
  for (const DType dtype : kDTypes)
    for (const Tensor& x : {arange(24, {.dtype = kF32, .device = kCPU}).to(dtype).view({2, 3, 4}),
                            arange(24, {kF32, kCPU}).to(dtype).view({2, 3, 4}).transpose(0, 2),
                            arange(24, {kF32, kCPU}).to(dtype).slice(0, 1, 20, 3), empty({0, 3}, {dtype, kCPU}),
                            ones({}, {dtype, kCPU})}) {
      const Tensor there = x.to(kGpu);
      EXPECT_EQ(there.device(), kGpu);
      EXPECT_EQ(there.sizes(), x.sizes());
      EXPECT_TRUE(there.to(kCPU).equal(x)) << describe(x);
      EXPECT_TRUE(there.cpu().equal(x));
      const Tensor target = empty_like(x);
      target.copy_(there);
      EXPECT_TRUE(target.equal(x));
    }
}

TEST_F(Cuda, pinned_memory_is_read_and_written_while_the_host_goes_on) {
  const Tensor x = arange(1 << 20, {kF32, kCPU}).pin_memory();
  EXPECT_TRUE(x.is_pinned());
  EXPECT_TRUE(x.pin_memory().is_same(x));
  const Tensor back = x.to(kGpu, true).mul(2).to(kCPU, true);
  EXPECT_TRUE(back.is_pinned());
  current_stream(kGpu).synchronize();
  EXPECT_TRUE(back.equal(x.mul(2)));
}

TEST_F(Cuda, pinned_memory_with_gaps_is_copied_first_and_an_event_says_so) {
  const Tensor x = arange(24, {kF32, kCPU}).pin_memory().view({4, 6});
  const Heard heard;
  EXPECT_TRUE(x.to(kGpu).to(kCPU).equal(x));
  EXPECT_EQ(heard.count(events::Kind::hidden_copy), 0);
  const Tensor gaps = x.narrow(1, 1, 3);
  EXPECT_TRUE(gaps.to(kGpu).to(kCPU).equal(gaps));
  EXPECT_EQ(heard.count(events::Kind::hidden_copy, "to"), 1);
}

TEST_F(Cuda, pinned_memory_that_a_stream_still_uses_is_not_handed_out_again) {
  const OwnedStream other(kGpu);
  const Tensor busy = zeros({64 << 20}, {.device = kGpu});
  ones({1 << 20}, {.device = kCPU}).pin_memory();  // leaves a block to take, so that nothing below waits for the system
  device::synchronize(kGpu);
  const void* first = nullptr;
  {
    const StreamScope scope(other);
    for (int i = 0; i < 400; ++i) busy.add_(1);
    const Tensor x = ones({1 << 20}, {.device = kCPU}).pin_memory();
    x.record_stream(other);
    first = x.data_ptr();
  }
  const Tensor next = ones({1 << 20}, {.device = kCPU}).pin_memory();
  EXPECT_NE(next.data_ptr(), first);
  other.synchronize();
  EXPECT_THROW(ones({2}, {.device = kCPU}).record_stream(other), DeviceError);
}

TEST_F(Cuda, host_memory_of_somebody_else_has_been_read_when_its_copy_returns) {
  const Tensor pinned = ones({1 << 22}, {.device = kCPU}).pin_memory(), busy = zeros({64 << 20}, {.device = kGpu});
  for (const bool non_blocking : {false, true}) {
    for (int i = 0; i < 50; ++i) busy.add_(1);
    const Tensor there = from_blob(pinned.data_ptr(), pinned.sizes(), {.device = kCPU}).to(kGpu, non_blocking);
    pinned.fill_(2);
    EXPECT_EQ(there.max().item<float>(), 1) << non_blocking;
    pinned.fill_(1);
  }
}

TEST_F(Cuda, a_gradient_returns_to_the_device_of_its_leaf) {
  const Tensor x = arange(6, {kF32, kCPU}).requires_grad_();
  x.to(kGpu).square().sum().backward();
  EXPECT_EQ(x.grad().device(), kCPU);
  EXPECT_TRUE(x.grad().equal(x.detach() * 2));
}

TEST_F(Cuda, a_cpu_tensor_without_dimensions_goes_with_others_as_a_number_does) {
  const Tensor x = ones({3}, {.device = kGpu}), two = full({}, 2.0, {kF32, kCPU}).requires_grad_();
  const Tensor y = x * two;
  EXPECT_EQ(y.device(), kGpu);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  const Heard heard;
  y.sum().backward();
  EXPECT_EQ(heard.count(events::Kind::hidden_copy), 1);
  EXPECT_EQ(heard.count(events::Kind::synchronisation), 1);
  EXPECT_EQ(two.grad().device(), kCPU);
  EXPECT_EQ(two.grad().item<float>(), 3);
  EXPECT_EQ((two + ones({}, {.device = kGpu})).device(), kGpu);
}

TEST_F(Cuda, a_gradient_from_the_cpu_is_refused_where_its_tensor_is_on_the_gpu) {
  const Tensor x = ones({3}, {.device = kGpu}).requires_grad_(), y = x.sum();
  EXPECT_THROW(y.backward(full({}, 1.0, {kF32, kCPU})), DeviceError);
  y.backward();
  EXPECT_EQ(x.grad().device(), kGpu);
}

TEST_F(Cuda, operands_on_two_devices_are_refused_and_named) {
  const Tensor here = ones({2, 3}, {.device = kCPU}), there = ones({2, 3}, {.device = kGpu});
  const std::string said = message<DeviceError>([&] { add(here, there); });
  EXPECT_NE(said.find("add"), std::string::npos) << said;
  EXPECT_NE(said.find("cuda:0"), std::string::npos) << said;
  EXPECT_THROW(here.add_(there), DeviceError);
  EXPECT_THROW(there.add_(here), DeviceError);
  EXPECT_THROW(add_out(there, here, here), DeviceError);
  EXPECT_THROW(there.matmul(here.t()), DeviceError);
  EXPECT_THROW(cat({here, there}), DeviceError);
  const Tensor counts = tensor({1, 2}, {.dtype = kI64, .device = kCPU}), index = zeros({2, 1}, {kI64, kCPU});
  EXPECT_THROW(repeat_interleave(there, counts, 0), DeviceError);
  EXPECT_THROW(repeat_interleave(here, counts.to(kGpu), 0), DeviceError);
  EXPECT_THROW(there.take_along_dim(index, 1), DeviceError);
  EXPECT_THROW(cat_out(zeros({4, 3}, {.device = kCPU}), std::vector<Tensor>{there, there}), DeviceError);
  EXPECT_THROW(gather_out(zeros({2, 1}, {.device = kGpu}), here, 1, index), DeviceError);
  EXPECT_THROW(embedding(there, tensor({0}, {.dtype = kI64, .device = kCPU})), DeviceError);
}

TEST_F(Cuda, an_index_outside_is_reported_by_a_later_call_and_the_device_goes_on) {
  const Tensor x = arange(5, {kF32, kGpu});
  for (int round = 0; round < 3; ++round) {
    const Tensor picked = index_select(x, 0, tensor({1, 7}, {.dtype = kI64, .device = kGpu}));
    const std::string said = message<IndexError>([] { device::synchronize(kGpu); });
    EXPECT_NE(said.find("index_select"), std::string::npos) << said;
    EXPECT_NE(said.find("got 7"), std::string::npos) << said;
    EXPECT_EQ(picked.to_vector<float>(), (std::vector<float>{1, 0})) << "what is not there reads as 0";
    EXPECT_EQ(x.sum().item<float>(), 10) << "the device works as before";
  }
}

TEST_F(Cuda, take_along_dim_names_itself_and_the_index_that_was_given) {
  const Tensor x = arange(4, {kF32, kGpu}).requires_grad_();
  for (const int64_t wrong : {4, -5}) {
    const std::string said = message<IndexError>([&] {
      x.take_along_dim(tensor({int64_t{-1}, wrong}, {.dtype = kI64, .device = kGpu}), 0);
      device::synchronize(kGpu);
    });
    EXPECT_EQ(said.find("take_along_dim: "), 0u) << said;
    EXPECT_NE(said.find("got " + std::to_string(wrong) + "; expected -4 to 3"), std::string::npos) << said;
  }
}

TEST_F(Cuda, work_on_two_streams_is_ordered_by_events) {
  const OwnedStream other(kGpu, -1);
  for (int round = 0; round < 50; ++round) {
    const Tensor x = zeros({1 << 20}, {.device = kGpu});
    for (int i = 0; i < 20; ++i) x.add_(1);
    const Event made(kGpu), used(kGpu);
    made.record(current_stream(kGpu));
    Tensor y;
    {
      const StreamScope scope(other);
      made.block(other);
      y = x.mul(3);
      x.record_stream(other);
      used.record(other);
    }
    used.block(current_stream(kGpu));
    ASSERT_EQ(y.min().item<float>(), 60);
    ASSERT_EQ(y.max().item<float>(), 60);
  }
}

TEST_F(Cuda, default_streams_are_those_of_their_own_device) {
  if (device::count(DeviceType::cuda) < 2) GTEST_SKIP() << "one GPU";
  constexpr Device kOther{DeviceType::cuda, 1};
  for (int round = 0; round < 20; ++round) {
    const Tensor x = zeros({1 << 20}, {.device = kOther});
    for (int i = 0; i < 20; ++i) x.add_(1);
    const Tensor here = zeros({1}, {.device = kGpu});  // this thread's device is now the first
    const Event there(kOther);
    there.record(current_stream(kOther));
    const OwnedStream side(kOther);
    there.block(side);
    const Tensor elsewhere = zeros({1}, {.device = kGpu});
    {
      const StreamScope scope(side);
      EXPECT_EQ(x.min().item<float>(), 20);
    }
    const Event done(kOther);
    done.record(side);
    here.add_(elsewhere);
    done.block(current_stream(kOther));
    done.block(current_stream(kGpu));
    there.synchronize();
    EXPECT_TRUE(there.done());
    EXPECT_EQ(x.add(1).max().item<float>(), 21);
  }
}

TEST_F(Cuda, each_thread_has_its_own_current_stream) {
  const OwnedStream mine(kGpu);
  const StreamScope scope(mine);
  std::thread([&] { EXPECT_EQ(current_stream(kGpu).handle, nullptr); }).join();
  EXPECT_EQ(current_stream(kGpu), Stream(mine));
}

TEST_F(Cuda, timed_events_measure_the_device) {
  const Event start(kGpu, true), end(kGpu, true);
  const Tensor x = zeros({64 << 20}, {.device = kGpu});
  start.record(current_stream(kGpu));
  x.add_(1);
  end.record(current_stream(kGpu));
  end.synchronize();
  EXPECT_GT(end.milliseconds_since(start), 0.01);
}

TEST_F(Cuda, more_memory_than_there_is_names_the_operator_and_the_next_call_works) {
  const Tensor x = ones({1}, {.device = kGpu});
  const std::string said = message<OutOfMemory>([&] { x.expand({int64_t{1} << 45}).clone().add_(1); });
  EXPECT_NE(said.find("cuda"), std::string::npos) << said;
  EXPECT_EQ(x.add(1).item<float>(), 2);
}

}  // namespace
}  // namespace lorry::test
