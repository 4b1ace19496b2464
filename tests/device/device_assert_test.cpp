// How a report passes from a device to the host, with the host in the device's place: no GPU is needed.

#include "lorry/device/cuda/device_assert.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/device/device.h"
#include "tests/support/message.h"

namespace lorry::cuda {
namespace {

/// A slot of the last device, which no machine has.
class DeviceAssertSlot : public testing::Test {
 protected:
  static constexpr int kNoDevice = kMaxDevices - 1;
  void SetUp() override { detail::g_assert_slots[kNoDevice].store(&slot_); }
  void TearDown() override { detail::g_assert_slots[kNoDevice].store(nullptr); }

  /// What `report` does.
  void report(int64_t value) {
    if (claimed_ >= __atomic_load_n(&slot_.generation, __ATOMIC_ACQUIRE)) return;
    claimed_ = slot_.generation;
    slot_.assertion = DeviceAssert::index;
    slot_.where = "take";
    slot_.value = value;
    slot_.low = 0;
    slot_.high = 5;
    __atomic_store_n(&slot_.filled, claimed_, __ATOMIC_RELEASE);
  }

  AssertSlot slot_;
  uint32_t claimed_ = 0;
};

TEST_F(DeviceAssertSlot, the_first_report_is_thrown_once_and_the_slot_is_free_again) {
  EXPECT_NO_THROW(throw_assert(kNoDevice));
  for (const int64_t value : {7, 8, 9}) {
    report(value);
    report(100);
    const std::string said = test::message<IndexError>([] { throw_assert(kNoDevice); });
    EXPECT_NE(said.find("take: index out of range; got " + std::to_string(value) + "; expected 0 to 4"),
              std::string::npos)
        << said;
    EXPECT_NO_THROW(throw_assert(kNoDevice));
  }
}

TEST_F(DeviceAssertSlot, what_must_not_stop_half_way_lets_reports_wait) {
  report(7);
  {
    const device::DeferReports scope;
    EXPECT_NO_THROW(throw_assert(kNoDevice));
    const device::DeferReports inner;
  }
  EXPECT_THROW(throw_assert(kNoDevice), IndexError);
}

TEST_F(DeviceAssertSlot, one_of_many_threads_throws_each_report) {
  constexpr int kReports = 200;
  std::atomic<int> thrown = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> hosts;
  for (int t = 0; t < 3; ++t)
    hosts.emplace_back([&] {
      while (!done) {
        try {
          throw_assert(kNoDevice);
        } catch (const IndexError&) {
          ++thrown;
        }
      }
    });
  for (int made = 0; made < kReports; ++made) {
    while (thrown < made) std::this_thread::yield();
    report(made);
  }
  while (thrown < kReports) std::this_thread::yield();
  done = true;
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(thrown, kReports);
}

}  // namespace
}  // namespace lorry::cuda
