#include "lorry/kernels/cpu/matmul/gemm_bf16.h"

#include <array>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <dnnl.hpp>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/matmul/onednn.h"

namespace lorry::kernels::cpu::onednn {
namespace {

/// m, n, k, the strides of a and b, the row stride of c.
using Key = std::array<int64_t, 8>;

const dnnl::engine& engine() {
  static const auto& cpu =
      // never destroyed: threads may compute until the process has ended
      *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return cpu;
}

struct Product {
  dnnl::memory::desc a, b, c, working;
  std::optional<dnnl::matmul> primitive;  ///< empty if oneDNN does not support the shape
};

Product make(const Key& key) {
  using dnnl::memory;
  const auto [m, n, k, a_row, a_col, b_row, b_col, c_row] = key;
  Product p{.a = memory::desc({m, k}, memory::data_type::bf16, memory::dims{a_row, a_col}),
            .b = memory::desc({k, n}, memory::data_type::bf16, memory::dims{b_row, b_col}),
            .c = memory::desc({m, n}, memory::data_type::f32, memory::dims{c_row, 1}),
            .working = {},
            .primitive = std::nullopt};
  dnnl::primitive_attr attributes;
  // User-provided scratch memory, because oneDNN's own belongs to the thread that made the primitive, and any thread
  // may run it.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const lorry::cpu::SerialScope serial;  // the kernel is built for one thread and runs on the caller's
  try {
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(p.a, p.b, p.c), attributes, engine());
#else
    const dnnl::matmul::primitive_desc description(engine(), p.a, p.b, p.c, attributes);
#endif
    p.working = description.scratchpad_desc();
    p.primitive.emplace(description);
  } catch (const dnnl::error&) {
  }
  return p;
}

/// The most recently used products, latest first. Making one takes oneDNN tens to hundreds of microseconds.
class Cache {
 public:
  Product find(const Key& key) {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto at = index_.find(key); at != index_.end()) {
        entries_.splice(entries_.begin(), entries_, at->second);
        return at->second->second;
      }
    }
    Product made = make(key);
    const std::scoped_lock lock(mutex_);
    if (index_.contains(key)) return made;  // another thread has added it
    entries_.emplace_front(key, made);
    index_.emplace(key, entries_.begin());
    if (entries_.size() > kCapacity) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return made;
  }

 private:
  static constexpr size_t kCapacity = 512;
  std::mutex mutex_;
  std::list<std::pair<Key, Product>> entries_;
  std::map<Key, std::list<std::pair<Key, Product>>::iterator> index_;
};

/// A product as a thread computes it again and again. Looking it up and wrapping its operands takes about as
/// long as a product of 64 x 64 matrices, so each thread keeps the last one.
class Prepared {
 public:
  Prepared(const Key& key, const Product& product)
      : key_(key),
        primitive_(product.primitive),
        working_bytes_(static_cast<int64_t>(product.working.get_size())),
        stream_(engine()),
        a_(product.a, engine(), DNNL_MEMORY_NONE),
        b_(product.b, engine(), DNNL_MEMORY_NONE),
        c_(product.c, engine(), DNNL_MEMORY_NONE),
        working_(product.working, engine(), DNNL_MEMORY_NONE),
        arguments_{{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}, {DNNL_ARG_SCRATCHPAD, working_}} {}

  static Prepared& of(const Key& key) {
    static Cache& cache = *new Cache;  // never destroyed
    static thread_local std::optional<Prepared> last;
    if (!last || last->key_ != key) last.emplace(key, cache.find(key));
    return *last;
  }

  /// Returns false if oneDNN does not support the shape.
  bool run(const Gemm<BFloat16, float>& g) {
    if (!primitive_) return false;
    // oneDNN takes all operands as pointers to mutable memory, but only reads the sources.
    a_.set_data_handle(const_cast<BFloat16*>(g.a));
    b_.set_data_handle(const_cast<BFloat16*>(g.b));
    c_.set_data_handle(g.c);
    working_.set_data_handle(scratch<char>(Scratch::library, working_bytes_));
    primitive_->execute(stream_, arguments_);
    return true;
  }

 private:
  Key key_;
  std::optional<dnnl::matmul> primitive_;
  int64_t working_bytes_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, c_, working_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace

bool gemm_bf16(const Gemm<BFloat16, float>& g) {
  static const bool native = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  if (!native || g.k == 0 || g.alpha != 1 || g.beta != 0) return false;
  const Call call;
  if (!call) return false;
  const lorry::cpu::SerialScope serial;
  const bool done = Prepared::of({g.m, g.n, g.k, g.a_row, g.a_col, g.b_row, g.b_col, g.c_row}).run(g);
  close_at_exit(g.m, g.n, g.k, (g.a_col == 1) | (g.b_col == 1) << 1 | 16);
  return done;
}

}  // namespace lorry::kernels::cpu::onednn
