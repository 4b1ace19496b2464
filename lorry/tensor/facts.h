#pragma once

// Facts: what happens to tensors and generators beside operator calls. Listeners (ops/dispatch/listener.h) hear of them
// on the threads where their bit is set. What an operator does inside is part of its call, and no fact.

#include <atomic>
#include <cstdint>

#include "lorry/base/modes.h"
#include "lorry/layout/device.h"

namespace lorry {

class Generator;
class Tensor;
namespace formula {
struct RandomKey;
}

enum class Fact : uint8_t {
  born,            ///< a storage was made
  died,            ///< a storage is about to be released: nothing refers to it any more
  alias,           ///< a tensor came to refer to another one's storage with no operator: detach(), view(dtype)
  host_read,       ///< the host reads elements: item(), to_vector(), printing
  grad_set,        ///< a leaf has another gradient
  data_set,        ///< a tensor came to refer to another storage: set_data()
  draw,            ///< a call takes the next draw of a generator, and will announce its key
  generator_read,  ///< the host reads a generator's state
  generator_set,   ///< a generator is seeded, or gets another state
};

struct FactView {
  Fact fact;
  uint64_t storage = 0;  ///< Storage::id(); for grad_set the leaf's; 0 where a generator is meant
  int64_t bytes = 0;     ///< of a storage that was born or died
  Device device = kCPU;  ///< where they lie
  /// the tensor that is meant: the alias, the one that is read, the gradient (perhaps undefined), the one with other
  /// memory; null for born, died and generators
  const Tensor* tensor = nullptr;
  const void* leaf = nullptr;               ///< of grad_set: the leaf's node, which may be gone
  const Generator* generator = nullptr;     ///< the one that draws, is read or set
  const formula::RandomKey* key = nullptr;  ///< of a draw
};

namespace detail {
/// Called with every fact by a thread with one of kFactModes; set by the door while it has listeners.
using FactHook = void (*)(const FactView&);
inline constinit std::atomic<FactHook> g_fact_hook{nullptr};

/// Whether somebody on this thread hears of facts; announce_fact only then.
inline bool facts_heard() { return (t_modes & kFactModes) != 0; }

inline void announce_fact(const FactView& fact) {
  if (const FactHook hook = g_fact_hook.load(std::memory_order_acquire)) hook(fact);
}
}  // namespace detail

}  // namespace lorry
