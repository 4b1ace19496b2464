#pragma once

// Experiments that need a process of their own: what starting costs, and kernels that fault. The child prints a line of
// JSON for each step and waits for an answer before the next, so that the parent can look at the device in between.

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lorry/bench/lessons.h"

namespace lorry::bench::lessons {

/// The parent's side.
class Child {
 public:
  /// Starts an experiment of run_child. Throws Error if the process cannot be started.
  Child(const Settings& settings, const std::string& experiment);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The next step that the child has made; none when it has ended. Throws Error if it makes none within a minute.
  std::optional<nlohmann::json> step();
  /// Lets the child go on.
  void go_on();
  /// Waits for the end, after the last step. "exit status 0", "signal 11 (Segmentation fault)".
  std::string wait();

 private:
  pid_t process_ = -1;
  int socket_ = -1;
  std::string read_;
};

/// The child's side: prints a step and waits for the parent. Returns false if the parent is gone.
bool tell(const nlohmann::json& step);

/// The experiments.
void start_child(Device device);
void vector_child(Device device);
void pointers_child(Device device);

}  // namespace lorry::bench::lessons
