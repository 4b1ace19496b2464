// Which calls make the host wait: on a GPU those that wait, on the CPU those that read what a GPU would have to finish.

#include "lorry/profile/sync.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lorry/base/call_stack.h"
#include "lorry/lorry.h"
#include "tests/support/message.h"
#include "tests/support/on_cuda.h"

namespace lorry::profile {
namespace {

using events::Wait;
using test::all_devices;

/// A call that reads its tensor on the host.
struct Reader {
  const char* source;
  Wait wait;
  std::function<void(const Tensor&)> call;
};

std::string text_of(const Tensor& x) {
  std::ostringstream text;
  text << x;
  return text.str();
}

std::vector<Reader> readers() {
  return {{"item", Wait::value, [](const Tensor& x) { x.select(0, 1).item<float>(); }},
          {"to_vector", Wait::elements, [](const Tensor& x) { x.to_vector<float>(); }},
          {"nonzero", Wait::size, [](const Tensor& x) { x.nonzero(); }},
          {"masked_select", Wait::size, [](const Tensor& x) { masked_select(x, x.gt(1)); }},
          {"unique", Wait::size, [](const Tensor& x) { unique(x); }}};
}

class Sync : public ::testing::Test {
 protected:
  Sync()
      : before_(events::set_handler([this](const events::Event& e) {
          if (e.wait == Wait::none) return;
          (e.kind == events::Kind::warning ? warned_ : waited_).push_back(e.wait);
          sources_.emplace_back(e.source);
          lines_.emplace_back(e.line);
        })) {}
  ~Sync() override { events::set_handler(before_); }

  std::vector<Wait> warned_, waited_;
  std::vector<std::string> sources_, lines_;
  events::Handler before_;
};

TEST_F(Sync, every_read_by_the_host_is_an_error_that_names_the_operator) {
  for (const Device device : all_devices()) {
    const Tensor x = arange(4, {.dtype = kF32, .device = device});
    for (const Reader& reader : readers()) {
      const auto scope = forbid_sync({.also_cpu = true});
      const std::string what = test::message<SynchronisationError>([&] { reader.call(x); });
      EXPECT_TRUE(what.starts_with(std::string(reader.source) + ": the host would wait")) << what;
      const auto except = allow_sync();
      EXPECT_NO_THROW(reader.call(x));
    }
    EXPECT_EQ(x.sum().item<float>(), 6) << "the tensor is as it was";
  }
  EXPECT_TRUE(warned_.empty());
}

TEST_F(Sync, every_read_by_the_host_is_warned_about_once) {
  for (const Device device : all_devices()) {
    const Tensor x = arange(4, {.dtype = kF32, .device = device});
    for (const Reader& reader : readers()) {
      warned_.clear(), waited_.clear(), sources_.clear();
      const auto scope = warn_sync({.also_cpu = true});
      reader.call(x);
      EXPECT_EQ(warned_, std::vector<Wait>{reader.wait}) << reader.source << " " << device;
      if (device.is_cpu()) {
        EXPECT_TRUE(waited_.empty()) << "nothing waits for the CPU";
      } else {
        EXPECT_EQ(waited_, std::vector<Wait>{reader.wait}) << reader.source;
      }
      for (const std::string& source : sources_) EXPECT_EQ(source, reader.source);
    }
  }
}

TEST_F(Sync, printing_reads_elements) {
  const Tensor x = ones({2}, {.device = kCPU});
  const auto scope = warn_sync({.also_cpu = true});
  text_of(x);
  EXPECT_EQ(warned_, std::vector<Wait>{Wait::elements});
}

TEST_F(Sync, on_the_cpu_nothing_waits_unless_reads_are_to_count) {
  const Tensor x = arange(4, {.dtype = kF32, .device = kCPU});
  const auto scope = forbid_sync();
  for (const Reader& reader : readers()) EXPECT_NO_THROW(reader.call(x));
  device::synchronize(kCPU);
  EXPECT_TRUE(warned_.empty());
}

TEST_F(Sync, calls_that_do_not_wait_are_allowed) {
  for (const Device device : all_devices()) {
    const Tensor x = ones({64, 64}, {.device = device}).requires_grad_();
    const Tensor on_host = ones({64}, {.device = kCPU});
    x.matmul(x).sum().backward();  // what is done once has been done
    const auto scope = forbid_sync({.also_cpu = true});
    (x.matmul(x).relu() + on_host.to(device)).sum().backward();
    x.detach().to(kCPU, true);
    where(x.detach().gt(0), x.detach(), x.detach() + 1);
  }
}

TEST_F(Sync, copies_that_are_waited_for_are_errors) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor there = ones({64}, {.device = test::kGPU}), pinned = ones({64}, {.device = kCPU}).pin_memory(),
               large = ones({8 << 20}, {.device = kCPU});
  const auto scope = forbid_sync();
  EXPECT_THROW(there.to(kCPU), SynchronisationError);
  EXPECT_THROW(pinned.to(test::kGPU), SynchronisationError);
  EXPECT_NO_THROW(pinned.to(test::kGPU, true));
  EXPECT_THROW(large.to(test::kGPU), SynchronisationError);
}

TEST_F(Sync, waits_that_the_program_asks_for_are_allowed_unless_they_are_to_count) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor x = ones({64}, {.device = test::kGPU});
  {
    const auto scope = forbid_sync();
    device::synchronize(test::kGPU);
    current_stream(test::kGPU).synchronize();
  }
  EXPECT_EQ(waited_, (std::vector<Wait>{Wait::asked, Wait::asked}));
  const auto scope = forbid_sync({.asked_too = true});
  EXPECT_THROW(device::synchronize(test::kGPU), SynchronisationError);
}

int line_of_call = 0;
[[gnu::noinline]] float here(const Tensor& x) {
  line_of_call = __LINE__ + 1;
  const float value = x.item<float>();
  return value + 1;
}

TEST_F(Sync, the_line_of_the_program_is_named) {
  const Tensor x = ones({}, {.device = kCPU});
  const SourceLine known = [] {
    const void* frames[8];
    const int count = call_stack(frames);
    return calling_line(std::span(frames).first(static_cast<size_t>(count)));
  }();
  std::string what;
  {
    const auto scope = forbid_sync({.also_cpu = true});
    what = test::message<SynchronisationError>([&] { here(x); });
  }
  {
    const auto scope = warn_sync({.also_cpu = true});
    here(x);
  }
  ASSERT_EQ(lines_.size(), 1u);
  if (known.file.empty()) GTEST_SKIP() << "no line information";
  const std::string expected = "sync_test.cpp:" + std::to_string(line_of_call);
  EXPECT_NE(what.find(expected), std::string::npos) << what;
  EXPECT_TRUE(lines_[0].ends_with(expected)) << lines_[0];
}

}  // namespace
}  // namespace lorry::profile
