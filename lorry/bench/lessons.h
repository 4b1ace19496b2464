#pragma once

// The lessons of `lorry lessons`: what makes programs slow, each shown by two or more ways of doing the same thing,
// measured on this machine. This header has the results and how to get them; `lessons/` has the lessons, and
// `lessons/json.h`, `lessons/page.h` write the results.
//
// Invariant: every number in a result was measured or counted in this run, and the code of a way is the source text of
// the lambda that was measured (lessons/source.h).

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/layout/device.h"
#include "lorry/profile/sampling.h"

namespace lorry::bench::lessons {

/// What this device was measured to reach, per microsecond. A rate that was not measured is missing or 0.
struct Ceilings {
  double copy_bytes = 0;                ///< a microsecond, read and written by a large copy within the device's memory
  std::map<std::string, double> flops;  ///< of a large square product, by dtype; and "tf32"
  double call_us = 0;                   ///< microseconds of the smallest call: one element, in place
  double to_device_bytes = 0, to_host_bytes = 0;  ///< between pinned host memory and a GPU
  std::string error = {};                         ///< why the rates are missing: the device's memory was too small
};

/// A figure beside the times.
struct Figure {
  std::string name;  ///< "page faults"
  double value;
  std::string unit = {};  ///< "us", "B", "B/s", "FLOP/s"; none for a count
};

/// "page faults: 16.4 k".
std::string text_of(const Figure& figure);

/// What a way does at least; it explains the time by the ceilings. Zeros: unknown.
struct Work {
  double bytes = 0;           ///< read from and written to the device's memory
  double flops = 0;           ///< floating-point operations
  std::string dtype = "f32";  ///< of the operations
  double calls = 0;           ///< operator calls
};

/// One way to do the thing, and its time.
struct Way {
  std::string name;
  std::string code;  ///< what was measured, formatted as in its source
  profile::BenchmarkResult time;
  Work work;
  std::vector<Figure> figures = {};
};

/// Which ceiling bounds a way's time from below.
struct Bound {
  std::string_view what;  ///< "memory", "arithmetic" or "calls"
  double us;              ///< the least time at that ceiling
};
/// The largest lower bound of a way's time, if its data is in memory and in no cache. None if nothing is known.
std::optional<Bound> bound(const Work& work, const Ceilings& ceilings);

/// Ways to do the same thing. The first is the one that the lesson warns about or that is often advised.
struct Comparison {
  std::string title;
  std::string given = {};      ///< code that ran before, not timed; may be empty
  std::vector<Way> ways = {};  ///< two or more
  size_t good = 1;             ///< the way to which the first is compared
  std::string verdict = {};    ///< what the measured ratio says
  std::string why = {};        ///< in terms of bytes, operations, calls and ceilings

  /// How many times as long as the good way the first one takes.
  double ratio() const { return ways.front().time.median_us / ways[good].time.median_us; }
};

/// Something that cannot be timed, such as a kernel that faults.
struct Tried {
  std::string what, code, outcome;
};

struct Lesson {
  int number = 0;
  std::string title, teaches;
  std::vector<Comparison> comparisons = {};
  std::vector<Tried> tried = {};
  std::vector<std::string> notes = {};   ///< further sentences with measured figures
  std::vector<std::string> absent = {};  ///< what this device cannot show, and why
  std::string error = {};                ///< not empty: the lesson ended early
  double seconds = 0;                    ///< that it took
};

struct Settings {
  Device device;
  double seconds = 0.15;  ///< how long each way is sampled
  /// The command that starts this program as a child process for an experiment; the experiment's name, the device and
  /// the number of threads follow. Empty: experiments that need a process of their own are left out.
  std::vector<std::string> child = {};
};

class LessonRun;

/// A row of the table of lessons.
struct Entry {
  int number;
  const char* title;
  const char* teaches;
  const char* file;  ///< the source in lessons/, from which the code is shown
  void (*run)(LessonRun& run);
};
/// The lessons in the order of their numbers: 0, 1, ...
std::span<const Entry> table();

/// Measures the ceilings that the lessons refer to. Takes a few seconds. If there is too little memory for it,
/// call_us is known but no rate, and Ceilings::error says so.
Ceilings measure_ceilings(const Settings& settings);

/// Runs a lesson. An error inside it, such as OutOfMemory, becomes Lesson::error.
Lesson run(const Entry& entry, const Settings& settings, const Ceilings& ceilings);

/// Runs an experiment in a process of its own, started by Settings::child; talks to its parent over standard input and
/// output. Returns the exit status. Throws ValueError for an unknown name.
int run_child(const std::string& experiment, Device device);

}  // namespace lorry::bench::lessons
