// Ceilings: what is measured, and that a file of theirs is believed only if it is one.

#include "lorry/profile/ceilings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lorry/base/error.h"
#include "lorry/device/cpu/team.h"
#include "lorry/lorry.h"
#include "lorry/profile/ceilings_file.h"
#include "tests/support/on_cuda.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/warnings.h"

namespace lorry::profile {
namespace {
namespace fs = std::filesystem;

using test::all_devices;

class CeilingsTest : public ::testing::Test {
 protected:
  CeilingsTest() {
    if (const char* value = std::getenv("LORRY_CACHE_DIR")) before_ = value;
    ::setenv("LORRY_CACHE_DIR", folder().c_str(), 1);
  }
  ~CeilingsTest() override {
    before_ ? ::setenv("LORRY_CACHE_DIR", before_->c_str(), 1) : ::unsetenv("LORRY_CACHE_DIR");
  }
  fs::path folder() const { return scratch_.root() / "cache"; }
  const test::ScratchFolder scratch_;
  std::optional<std::string> before_;
};

/// Ceilings as a CPU could have them, no two figures alike.
Ceilings plausible() {
  return {.device = kCPU,
          .name = "a processor",
          .copy_bytes_per_s = 1.5e10,
          .read_bytes_per_s = 2.25e10,
          .launch_s = 5e-8,
          .team_s = 3e-6,
          .matmul_flops_per_s = {{kF64, 2e10}, {kF32, 4e10}, {kBF16, 8e10}},
          .measured_in_s = 1.25,
          .measured_at = "2026-01-31T12:00:00Z"};
}

TEST_F(CeilingsTest, every_figure_of_a_device_is_positive_and_they_agree_with_each_other) {
  for (const Device device : all_devices()) {
    const Ceilings& c = ceilings(device, {.remeasure = true});
    EXPECT_EQ(c.device, device);
    EXPECT_FALSE(c.name.empty());
    EXPECT_FALSE(c.cached);
    EXPECT_GT(c.copy_bytes_per_s, 1e8);
    EXPECT_GT(c.read_bytes_per_s, 1e8);
    EXPECT_GT(c.launch_s, 1e-9);
    EXPECT_GT(c.measured_in_s, 0);
    for (const DType dtype : {kF64, kF32, kBF16}) EXPECT_GT(c.matmul_flops_per_s.at(dtype), 1e7);
    EXPECT_EQ(c.measured_at.size(), std::string("2026-01-31T12:00:00Z").size());
    if (device.is_cpu()) {
      EXPECT_GT(c.team_s, 0);
      EXPECT_EQ(c.wait_s, 0);
      EXPECT_EQ(c.link_to_device_bytes_per_s, 0);
    } else {
      EXPECT_GT(c.wait_s, 0);
      EXPECT_EQ(c.team_s, 0);
      for (const double rate : {c.link_to_device_bytes_per_s, c.link_to_host_bytes_per_s,
                                c.pageable_to_device_bytes_per_s, c.pageable_to_host_bytes_per_s}) {
        EXPECT_GT(rate, 1e7);
      }
    }
  }
}

TEST_F(CeilingsTest, a_device_is_measured_once_and_every_user_gets_the_same_figures) {
  const Ceilings& first = ceilings(kCPU, {.remeasure = true});
  const Ceilings* other = nullptr;
  std::thread([&] { other = &ceilings(kCPU); }).join();
  EXPECT_EQ(other, &first);
  CopyRate copies(kCPU);
  EXPECT_EQ(copies.of(large_copy(kCPU)), first.copy_bytes_per_s / 1e6);
  EXPECT_EQ(copies.of(3 * large_copy(kCPU)), first.copy_bytes_per_s / 1e6);
}

TEST_F(CeilingsTest, another_number_of_threads_is_another_machine) {
  const int threads = cpu::threads();
  const std::string key = detail::ceilings_key(kCPU);
  cpu::set_threads(threads + 1);
  EXPECT_NE(detail::ceilings_key(kCPU), key);
  cpu::set_threads(threads);
  EXPECT_EQ(detail::ceilings_key(kCPU), key);
}

TEST_F(CeilingsTest, a_measurement_leaves_the_programs_state_alone) {
  manual_seed(7);
  const std::vector<float> expected = randn({8}).to_vector<float>();
  manual_seed(7);
  const Precision precision = matmul_precision();
  ceilings(kCPU, {.remeasure = true});
  EXPECT_EQ(randn({8}).to_vector<float>(), expected);
  EXPECT_EQ(matmul_precision(), precision);
  EXPECT_TRUE(mode(kGradMode));
}

TEST_F(CeilingsTest, what_is_written_is_read_again) {
  const Ceilings c = plausible();
  detail::save_ceilings(c, "key");
  std::optional<Ceilings> read = detail::load_ceilings("key", kCPU);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(read->cached);
  read->cached = false;
  EXPECT_EQ(*read, c);
  EXPECT_FALSE(detail::load_ceilings("another key", kCPU).has_value());
}

TEST_F(CeilingsTest, a_truncated_or_changed_file_counts_as_absent) {
  const std::string text = detail::ceilings_text(plausible(), "key");
  ASSERT_TRUE(detail::read_ceilings(text, "key", kCPU).has_value());
  for (size_t length = 0; length + 3 < text.size(); ++length)
    EXPECT_FALSE(detail::read_ceilings(text.substr(0, length), "key", kCPU).has_value()) << length;
  for (size_t at = 0; at < text.size(); ++at) {  // whatever a changed byte leaves is absent, or figures
    std::string changed = text;
    for (const char byte : {'\0', '\xff', '"', '9', '{'}) {
      changed[at] = byte;
      if (const auto read = detail::read_ceilings(changed, "key", kCPU)) {
        EXPECT_GT(read->copy_bytes_per_s, 0);
        EXPECT_TRUE(std::isfinite(read->copy_bytes_per_s));
      }
    }
  }
}

TEST_F(CeilingsTest, figures_that_no_measurement_gives_are_refused) {
  const auto with = [](const char* name, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(detail::ceilings_text(plausible(), "key"));
    json[name] = value;
    return detail::read_ceilings(json.dump(), "key", kCPU).has_value();
  };
  EXPECT_TRUE(with("copy_bytes_per_s", 1e10));
  for (const nlohmann::json& bad : {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1e30), nlohmann::json("1e10"),
                                    nlohmann::json(nullptr), nlohmann::json::array({1})})
    EXPECT_FALSE(with("copy_bytes_per_s", bad)) << bad;
  EXPECT_FALSE(with("launch_s", 2));
  EXPECT_FALSE(with("team_s", 0));
  EXPECT_FALSE(with("matmul_flops_per_s", {{"f32", 1e10}}));
  EXPECT_FALSE(with("matmul_flops_per_s", {{"f32", 1e10}, {"f64", 1e10}, {"bf16", -1}}));
  EXPECT_FALSE(with("matmul_flops_per_s", 3));
  EXPECT_FALSE(with("name", std::string(1000, 'x')));
  EXPECT_FALSE(with("name", 3));
  EXPECT_FALSE(detail::read_ceilings("[]", "key", kCPU).has_value());
  EXPECT_FALSE(detail::read_ceilings(std::string(60000, '['), "key", kCPU).has_value());
  // A GPU's have more figures than a CPU's.
  EXPECT_FALSE(detail::read_ceilings(detail::ceilings_text(plausible(), "key"), "key", test::kGPU).has_value());
}

TEST_F(CeilingsTest, a_file_that_others_could_have_written_is_not_read) {
  detail::save_ceilings(plausible(), "key");
  const fs::path file = fs::directory_iterator(folder())->path();
  struct stat facts;
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_FALSE(detail::load_ceilings("key", kCPU).has_value());
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_TRUE(detail::load_ceilings("key", kCPU).has_value());
  std::ofstream(file, std::ios::app) << std::string(1 << 17, ' ');
  EXPECT_FALSE(detail::load_ceilings("key", kCPU).has_value());
}

TEST_F(CeilingsTest, a_folder_that_cannot_be_written_is_a_warning) {
  std::ofstream(folder()) << "a file";
  const test::Warnings warnings;
  detail::save_ceilings(plausible(), "key");
  EXPECT_NE(warnings.all().find("ceilings are measured again in each process"), std::string::npos) << warnings.all();
}

TEST_F(CeilingsTest, devices_without_ceilings_are_refused) {
  EXPECT_THROW(ceilings(kMeta), DeviceError);
  EXPECT_THROW(ceilings(Device{DeviceType::cuda, 99}), DeviceError);
}

}  // namespace
}  // namespace lorry::profile
