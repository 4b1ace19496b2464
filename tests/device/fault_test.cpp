// How a report passes from a device to the host, with the host in the device's place: no GPU is needed.

#include "lorry/device/cuda/fault.h"

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
class FaultSlot : public testing::Test {
 protected:
  static constexpr int kNoDevice = kMaxDevices - 1;
  void SetUp() override { detail::g_faults[kNoDevice].store(&fault_); }
  void TearDown() override { detail::g_faults[kNoDevice].store(nullptr); }

  /// What `report` does.
  void report(int64_t value) {
    if (claimed_ >= __atomic_load_n(&fault_.generation, __ATOMIC_ACQUIRE)) return;
    claimed_ = fault_.generation;
    fault_.assertion = DeviceAssert::index;
    fault_.where = "take";
    fault_.value = value;
    fault_.low = 0;
    fault_.high = 5;
    __atomic_store_n(&fault_.filled, claimed_, __ATOMIC_RELEASE);
  }

  Fault fault_;
  uint32_t claimed_ = 0;
};

TEST_F(FaultSlot, the_first_report_is_thrown_once_and_the_slot_is_free_again) {
  EXPECT_NO_THROW(throw_fault(kNoDevice));
  for (const int64_t value : {7, 8, 9}) {
    report(value);
    report(100);
    const std::string said = test::message<IndexError>([] { throw_fault(kNoDevice); });
    EXPECT_NE(said.find("take: index out of range; got " + std::to_string(value) + "; expected 0 to 4"),
              std::string::npos)
        << said;
    EXPECT_NO_THROW(throw_fault(kNoDevice));
  }
}

TEST_F(FaultSlot, what_must_not_stop_half_way_lets_reports_wait) {
  report(7);
  {
    const device::ReportsWait scope;
    EXPECT_NO_THROW(throw_fault(kNoDevice));
    const device::ReportsWait inner;
  }
  EXPECT_THROW(throw_fault(kNoDevice), IndexError);
}

TEST_F(FaultSlot, one_of_many_threads_throws_each_report) {
  constexpr int kReports = 200;
  std::atomic<int> thrown = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> hosts;
  for (int t = 0; t < 3; ++t)
    hosts.emplace_back([&] {
      while (!done) {
        try {
          throw_fault(kNoDevice);
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
