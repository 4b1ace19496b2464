#include "lorry/kernels/cpu/matmul/gemm_bf16.h"

#include <array>
#include <list>
#include <map>
#include <mutex>
#include <optional>

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

}  // namespace

bool gemm_bf16(const Gemm<BFloat16, float>& g) {
  static const bool native = [] {
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
  }();
  if (!native || g.k == 0 || g.alpha != 1 || g.beta != 0) return false;
  const Call call;
  if (!call) return false;
  static Cache& cache = *new Cache;  // never destroyed
  const Key key{g.m, g.n, g.k, g.a_row, g.a_col, g.b_row, g.b_col, g.c_row};
  const Product product = cache.find(key);
  const auto close = [&] { close_at_exit(g.m, g.n, g.k, (g.a_col == 1) | (g.b_col == 1) << 1 | 16); };
  if (!product.primitive) return close(), false;
  const lorry::cpu::SerialScope serial;
  dnnl::stream stream(engine());
  // oneDNN takes all operands as pointers to mutable memory, but only reads the sources.
  const dnnl::memory a(product.a, engine(), const_cast<BFloat16*>(g.a)),
      b(product.b, engine(), const_cast<BFloat16*>(g.b)), c(product.c, engine(), g.c);
  const dnnl::memory working(product.working, engine(),
                             scratch<char>(Scratch::library, static_cast<int64_t>(product.working.get_size())));
  product.primitive->execute(
      stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, working}});
  close();
  return true;
}

}  // namespace lorry::kernels::cpu::onednn
