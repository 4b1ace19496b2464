#pragma once

// Planted culprits: small programs of which it is known why they are slow. culprits_test.cpp records each one under a
// Session, and compares what diagnose() says of it with what was planted.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lorry/profile/diagnose.h"

namespace lorry::test {

/// Waits for a GPU at one place.
struct PlantedWait {
  std::string name;                       ///< the operator that waits
  int64_t count = 1;                      ///< in one run of the body
  int64_t joinable = 0;                   ///< of them, how many follow another with nothing between; -1: not compared
  std::optional<bool> is_needed = false;  ///< the work before it takes the time; none: either is right
};

/// A program and the same program without what was planted. The difference of their times is what the diagnosis
/// predicts: the gain of the first planted finding or, if there are only waits, the idle time that they cause.
struct Program {
  std::function<void()> run;
  std::function<void()> cured = {};  ///< empty: there is nothing to compare with
};

struct Culprit {
  const char* name = "";
  std::function<Program(Device)> make = {};
  int repeats = 1;  ///< of run() under the session
  profile::Regime regime = {};
  std::vector<profile::Finding::Kind> findings = {};   ///< planted
  std::vector<profile::Finding::Kind> tolerated = {};  ///< would gain too, though they are not what was planted
  std::vector<PlantedWait> waits = {};
  bool compares_idle = false;  ///< `cured` only leaves the waits out
};

std::vector<Culprit> culprits_on_cpu();
std::vector<Culprit> culprits_on_gpu();

// Programs for every device (culprits_programs.cpp).
Program written_one_by_one(Device device);
Program read_one_by_one(Device device);
Program tiny_updates(Device device);
Program loop_over_parameters(Device device);
Program optimizer_by_loop(Device device);
Program chain_of_pointwise(Device device);
Program compiled_chain(Device device);
Program small_chain(Device device);
Program graphed_chain(Device device);
Program large_copy(Device device);
Program norm_and_relu(Device device);
Program small_products(Device device);
Program copied_before_sum(Device device);
Program new_tensor_each_time(Device device);
Program sleeping_loader(Device device);
Program training_step(Device device);
Program graphed_step(Device device);
/// Products of n x n.
Program products(Device device, DType dtype, int64_t n);

}  // namespace lorry::test
