#include "lorry/base/recycled.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace lorry {
namespace {

struct Small : detail::Recycled<Small> {
  int64_t value[5] = {1, 2, 3, 4, 5};
};
struct Larger : Small {
  int64_t more[20] = {};
};

TEST(Recycled, objects_do_not_overlap) {
  std::vector<std::unique_ptr<Small>> alive;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 7; ++i) {
      alive.push_back(std::make_unique<Small>());
      alive.back()->value[0] = static_cast<int64_t>(alive.size());
    }
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(alive.back()->value[0], static_cast<int64_t>(alive.size()));
      alive.pop_back();
    }
  }
  for (size_t i = 0; i < alive.size(); ++i) EXPECT_EQ(alive[i]->value[0], static_cast<int64_t>(i + 1));
}

TEST(Recycled, a_class_of_another_size_has_memory_of_its_own) {
  delete new Small;
  delete new Larger;
  const auto larger = std::make_unique<Larger>();
  const auto small = std::make_unique<Small>();
  for (int64_t& x : larger->more) x = 7;
  EXPECT_EQ(small->value[4], 5);
}

TEST(Recycled, objects_end_on_other_threads) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Small>> made;
    std::thread([&] {
      for (int i = 0; i < 100; ++i) made.push_back(std::make_unique<Small>());
    }).join();
    std::thread([list = std::move(made)]() mutable { list.clear(); }).join();
  }
}

// Destroys an object after the thread has given back what it held.
struct Late {
  Small* object = nullptr;
  ~Late() { delete object; }
};

TEST(Recycled, objects_outlive_the_objects_of_their_thread) {
  std::thread([] {
    static thread_local Late late;  // made before the list of free memory, so destroyed after it
    late.object = new Small;
    for (int i = 0; i < 10; ++i) delete new Small;
  }).join();
}

}  // namespace
}  // namespace lorry
