#include "lorry/kernels/cpu/gemm_bf16.h"

#include <array>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <dnnl.hpp>

#include "lorry/device/cpu/team.h"

namespace lorry::kernels::cpu::onednn {
namespace {

/// m, n, k, the strides of a and b, the row stride of c, and the bits of alpha and beta.
using Key = std::array<int64_t, 10>;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

struct Product {
  dnnl::memory::desc a, b, c;
  std::optional<dnnl::matmul> primitive;  ///< empty when oneDNN refuses the shape
};

Product make(const Key& key, float alpha, float beta) {
  using dnnl::memory;
  const auto [m, n, k, a_row, a_col, b_row, b_col, c_row, alpha_bits, beta_bits] = key;
  Product p{memory::desc({m, k}, memory::data_type::bf16, memory::dims{a_row, a_col}),
            memory::desc({k, n}, memory::data_type::bf16, memory::dims{b_row, b_col}), memory::desc({m, n}, memory::data_type::f32, memory::dims{c_row, 1}),
            std::nullopt};
  dnnl::primitive_attr attributes;
#if DNNL_VERSION_MAJOR < 3
  if (alpha != 1) attributes.set_output_scales(0, {alpha});
#else
  if (alpha != 1) return p;  // the built-in kernel scales: version 3 knows scales of inputs only
#endif
  if (beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(beta);
    attributes.set_post_ops(sum);
  }
  const lorry::cpu::SerialScope serial;  // the kernel is built for one thread, and runs on the caller's
  try {
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(p.a, p.b, p.c), attributes, engine());
#else
    const dnnl::matmul::primitive_desc description(engine(), p.a, p.b, p.c, attributes);
#endif
    p.primitive.emplace(description);
  } catch (const dnnl::error&) {
  }
  return p;
}

/// The products last used, most recent first. Making one takes oneDNN tens to hundreds of microseconds.
class Cache {
 public:
  Product find(const Key& key, float alpha, float beta) {
    {
      const std::scoped_lock lock(mutex_);
      if (const auto at = index_.find(key); at != index_.end()) {
        entries_.splice(entries_.begin(), entries_, at->second);
        return at->second->second;
      }
    }
    Product made = make(key, alpha, beta);
    const std::scoped_lock lock(mutex_);
    if (index_.contains(key)) return made;  // another thread was faster
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
  if (!native || g.k == 0) return false;
  static Cache cache;
  const Key key{g.m, g.n, g.k, g.a_row, g.a_col, g.b_row, g.b_col, g.c_row, std::bit_cast<int32_t>(g.alpha), std::bit_cast<int32_t>(g.beta)};
  const Product product = cache.find(key, g.alpha, g.beta);
  if (!product.primitive) return false;
  const lorry::cpu::SerialScope serial;
  dnnl::stream stream(engine());
  // oneDNN takes every operand by a pointer to mutable memory; sources are only read.
  const dnnl::memory a(product.a, engine(), const_cast<BFloat16*>(g.a)), b(product.b, engine(), const_cast<BFloat16*>(g.b)), c(product.c, engine(), g.c);
  product.primitive->execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
  return true;
}

}  // namespace lorry::kernels::cpu::onednn
