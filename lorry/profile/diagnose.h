#pragma once

// Says why a program is slow: what its time goes to, which waits left the GPU idle, and what would gain how much.
//
//   const profile::Recording recording = session.stop();
//   fmt::print("{}", profile::to_string(profile::diagnose(recording)));
//
// Time is divided among four regimes:
//   memory    the device moves bytes, at or below the rate of a copy
//   compute   the device computes, at or below the rate of a large product
//   overhead  work is too small to keep the device busy, or the host is busy between calls
//   waiting   nothing works: the host sleeps or waits for a file, or data cross the link between host and device
// What a call must move and compute (door::cost) is compared with the device's ceilings (profile/ceilings.h).
//
// Predicted gains are the time that a cure saves if nothing else changes. They are estimates, from rates measured here.
// If records are missing there is no verdict: the diagnosis says what is missing.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "lorry/profile/ceilings.h"
#include "lorry/profile/recording.h"

namespace lorry::profile {

/// What time goes to.
enum class Regime : uint8_t { overhead, memory, compute, waiting };
inline constexpr int kRegimes = 4;
/// "overhead", "memory", "compute" or "waiting".
const char* name(Regime regime);

/// Nanoseconds by regime.
struct RegimeTimes {
  std::array<double, kRegimes> ns{};

  double& operator[](Regime r) { return ns[static_cast<size_t>(r)]; }
  double operator[](Regime r) const { return ns[static_cast<size_t>(r)]; }
  double total() const { return ns[0] + ns[1] + ns[2] + ns[3]; }
  /// The one that takes the most time.
  Regime largest() const;
};

/// A part of the program: a range that the user named (Scope), or else "forward", "backward", "optimizer".
struct Phase {
  std::string name = {};
  int64_t host_ns = 0;    ///< time of the host in it
  int64_t device_ns = 0;  ///< time of GPUs on what it launched
  RegimeTimes times = {};
};

/// Waits for a GPU at one place of the program.
struct WaitReport {
  std::string name = {};  ///< the operator that waited
  std::string text = {};  ///< for what
  std::string path = {}, line = {};
  int64_t count = 0;
  int64_t waited_ns = 0;
  /// How much longer the GPU was idle than if the host had not waited: without the wait, the next work would have been
  /// enqueued earlier by the time of the wait.
  int64_t idle_caused_ns = 0;
  /// The wait took long because the work before it did; the GPU was hardly idle for it.
  bool is_needed = false;
  int64_t could_join = 0;  ///< how many of them follow another wait with no launch between: one wait would do
  /// What the host would save if each run of waits with no launch between were one, of all values at once.
  double joining_saves_ns = 0;
};

/// Something that would make the program faster, at one place of it.
struct Finding {
  enum class Kind : uint8_t {
    fuse,          ///< calls over the same elements, one after the other
    foreach,       ///< one call after the other of the same operator on many tensors
    elements,      ///< elements read or written one by one
    graph,         ///< the same calls again and again, and the host takes longer than the GPU
    host_tensors,  ///< tensors made on the host and copied
    pageable,      ///< copies from or to pageable memory
    dtype,         ///< products in a dtype slower than a more precise one, or than what the device has for it
    alignment,     ///< products whose sizes miss the fast kernels
    contiguous,    ///< a copy that was not needed
    out_of_place,  ///< a new tensor whose operand dies at once
    batch,         ///< many small products of the same sizes
    optimizer,     ///< an optimizer's execution that is not the fastest
    waits,         ///< several waits that could be one
  };
  Kind kind{};
  std::string what = {};  ///< what was found, as a sentence
  std::string cure = {};  ///< what to do, as a sentence
  std::string path = {}, line = {};
  int64_t count = 0;       ///< how often
  double time_ns = 0;      ///< the time of what was found
  double gain_ns = 0;      ///< predicted
  int64_t gain_bytes = 0;  ///< of memory that would not be needed
  bool can_apply = false;  ///< `lorry profile --apply` can measure the cure
};
/// "fuse", "foreach", "elements", ...
const char* name(Finding::Kind kind);

/// A group of calls against the ceilings, for the roofline plot.
struct RooflinePoint {
  std::string name = {};
  double bytes = 0, flops = 0, ns = 0;
};

/// The verdict on a recording. Times are in nanoseconds.
struct Diagnosis {
  std::vector<std::string> incomplete = {};  ///< what is missing; then nothing below is filled in
  Device device = kCPU;                      ///< the one that did most of the work
  Ceilings ceilings = {};
  int64_t duration_ns = 0;  ///< of the session
  int64_t busy_ns = 0;      ///< a GPU worked; on the CPU: time in calls
  RegimeTimes times = {};   ///< of the program: without what recording took
  Regime regime{};
  std::vector<Phase> phases = {};
  std::vector<WaitReport> waits = {};
  std::vector<Finding> findings = {};  ///< largest predicted gain first
  std::vector<RooflinePoint> points = {};

  bool is_complete() const { return incomplete.empty(); }
};

/// What is compared, and what is left out.
struct DiagnoseOptions {
  /// A finding whose predicted gain is less than this share of the program's time is left out.
  double least_gain = 0.02;
  /// Ceilings to compare with; empty: those of the devices that worked, measured now if they are not known.
  std::vector<Ceilings> ceilings = {};
};

/// Throws ValueError for a negative least_gain. Needs a recording with operands for most findings.
Diagnosis diagnose(const Recording& recording, const DiagnoseOptions& options = {});
/// For people.
std::string to_string(const Diagnosis& diagnosis);
/// For programs.
std::string to_json(const Diagnosis& diagnosis);
/// The roofline of the device with the groups of calls as dots.
std::string to_svg(const Diagnosis& diagnosis);

}  // namespace lorry::profile
