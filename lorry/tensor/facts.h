#pragma once

// Facts: events of tensors and generators that are not operator calls. Listeners (ops/dispatch/listener.h) receive them
// on the threads where their mode bit is set. What an operator does internally is part of its call and not a fact.

#include <atomic>
#include <cstdint>
#include <vector>

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
  died,            ///< a storage is about to be released; nothing refers to it any more
  alias,           ///< a tensor was made that shares another one's storage, without an operator: detach(), view(dtype)
  host_read,       ///< the host reads elements: item(), to_vector(), printing
  address,         ///< the host takes the address of elements: data_ptr(), data()
  grad_set,        ///< a leaf's gradient was replaced
  data_set,        ///< a tensor now refers to another storage: set_data()
  draw,            ///< a call takes the next draw of a generator; its key will be among the call's attributes
  generator_read,  ///< the host reads a generator's state
  generator_set,   ///< a generator was seeded or its state was set
  sizes,           ///< while a function is recorded: code outside operators reads a tensor's sizes, or what follows
                   ///< from them, such as numel() or strides()
};

struct FactView {
  Fact fact;
  uint64_t storage = 0;  ///< Storage::id(); for grad_set the leaf's; 0 for generators
  int64_t bytes = 0;     ///< born, died: the storage's size
  Device device = kCPU;  ///< born, died: the storage's device
  /// alias: the new tensor; host_read, address, sizes: the tensor read; grad_set: the gradient (may be undefined);
  /// data_set: the tensor changed; otherwise null
  const Tensor* tensor = nullptr;
  int dim = -1;                             ///< sizes: the dimension whose size is read; -1: all of them
  const void* leaf = nullptr;               ///< grad_set: the leaf's node, which may no longer exist
  const Generator* generator = nullptr;     ///< draw, generator_read, generator_set: the generator
  const formula::RandomKey* key = nullptr;  ///< draw: its key
};

namespace detail {
/// Receives every fact of threads with one of kFactModes. Set by the door while it has listeners.
using FactHook = void (*)(const FactView&);
inline constinit std::atomic<FactHook> g_fact_hook{nullptr};

/// Whether a listener of this thread receives facts. Call announce_fact only if so.
inline bool facts_heard() { return (t_modes & kFactModes) != 0; }

inline void announce_fact(const FactView& fact) {
  if (const FactHook hook = g_fact_hook.load(std::memory_order_acquire)) hook(fact);
}

/// Whether a listener or a capture is told of addresses that the host takes. Call announce_address only if so.
inline bool addresses_heard() { return (t_modes & (kFactModes | kAddressMode)) != 0; }
void announce_address(const Tensor& x);

/// Where the host is about to write a CPU tensor: in a capture, each replay must find what was written.
void note_host_write(const Tensor& x);

/// While this thread's calls are captured for a GPU: host memory of the capture that the host may have written, which
/// must not be used for anything else. Null otherwise.
inline constinit thread_local std::vector<Tensor>* t_host_written = nullptr;

/// Whether a recorder is told of sizes that are read. Call announce_sizes only if so.
inline bool sizes_heard() { return (t_modes & kSizesMode) != 0; }
void announce_sizes(const Tensor& x, int dim = -1);
}  // namespace detail

}  // namespace lorry
