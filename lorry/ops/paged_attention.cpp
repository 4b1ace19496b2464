#include "lorry/ops/paged_attention.h"

#include <array>
#include <cmath>

#include "lorry/base/events.h"
#include "lorry/kernels/paged.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/index_support.h"

namespace lorry {
namespace {

struct Named {
  const Tensor* x;
  const char* name;
};

/// first: of the dtype and on the device of all.
void require_like(const Named& first, std::span<const Named> others) {
  require_defined(*first.x, first.name);
  require<DTypeError>(is_floating(first.x->dtype()), "{} is not floating; got {}; expected one of {}", first.name,
                      *first.x, kFloatingNames);
  for (const auto& [x, name] : others) {
    require_defined(*x, name);
    require_same_device(*x, *first.x);
    require<DTypeError>(x->dtype() == first.x->dtype(), "{} has another dtype; got {}: {}, {}: {}; expected one dtype",
                        name, first.name, *first.x, name, *x);
    require<GradError>(!(mode(kGradMode) && x->requires_grad()),
                       "{} requires a gradient, and there is none; got {}; call it inside NoGrad", name, *x);
  }
  require<GradError>(!(mode(kGradMode) && first.x->requires_grad()),
                     "{} requires a gradient, and there is none; got {}; call it inside NoGrad", first.name, *first.x);
}

void require_caches(const Tensor& k_cache, const Tensor& v_cache) {
  require<ShapeError>(k_cache.dim() == 4 && v_cache.sizes() == k_cache.sizes() && k_cache.size(1) > 0,
                      "the caches do not fit; got k_cache: {}, v_cache: {}; expected [blocks, block_size, heads, d] of "
                      "both, block_size at least 1",
                      k_cache, v_cache);
}

/// x: what has the n rows.
void require_rows(const Tensor& x, const Tensor& block_table, const Tensor& slots, const Tensor& positions) {
  for (const auto& [index, name] :
       {Named{&block_table, "block_table"}, Named{&slots, "slots"}, Named{&positions, "positions"}}) {
    require_defined(*index, name);
    require_same_device(*index, x);
    require<DTypeError>(index->dtype() == kI32, "{} is not i32; got {}", name, *index);
  }
  require<ShapeError>(block_table.dim() == 2, "block_table is no matrix; got {}; expected [sequences, max_blocks]",
                      block_table);
  const Dims rows = {x.size(0)};
  require<ShapeError>(slots.sizes() == rows && positions.sizes() == rows,
                      "rows do not fit; got slots: {}, positions: {} for {}; expected one of each for every row", slots,
                      positions, x);
}

/// The descriptions of rows as the kernels take them.
struct RowTensors {
  Tensor block_table, slots, positions;

  RowTensors(const Tensor& block_table, const Tensor& slots, const Tensor& positions)
      : block_table(block_table.contiguous()), slots(slots.contiguous()), positions(positions.contiguous()) {}
  kernels::PagedRows rows() const { return {array(block_table), array(slots), array(positions)}; }
};

/// Whether the kernels read x where it lies.
bool readable(const Tensor& x) { return x.numel() == 0 || x.size(-1) == 1 || x.stride(-1) == 1; }

Tensor row_major(const Tensor& x, const char* why) {
  events::emit(events::Kind::hidden_copy, t_operator, why);
  return x.contiguous();
}

/// x with the last stride 1: the only coordinate of heads of one counts as such.
kernels::Array heads_of(const Tensor& x) {
  kernels::Array heads = array(x);
  heads.layout.strides[heads.layout.rank - 1] = 1;
  return heads;
}

}  // namespace

void paged_write(const Tensor& k_cache, const Tensor& v_cache, const Tensor& k, const Tensor& v,
                 const Tensor& block_table, const Tensor& slots, const Tensor& positions) {
  const Running running("paged_write");
  const Named others[] = {{&v_cache, "v_cache"}, {&k, "k"}, {&v, "v"}};
  require_like({&k_cache, "k_cache"}, others);
  require_caches(k_cache, v_cache);
  require<ShapeError>(
      k.dim() == 3 && v.sizes() == k.sizes() && k.size(1) == k_cache.size(2) && k.size(2) == k_cache.size(3),
      "k and v do not fit the caches; got k: {}, v: {}, k_cache: {}; expected [n, heads, d] of both", k, v, k_cache);
  require_rows(k, block_table, slots, positions);
  const std::array<Tensor, 2> caches{k_cache, v_cache};
  for (const Tensor& cache : caches) door::require_writable(cache);
  door::call_into(Op::paged_write, true, caches, {&k_cache, &v_cache, &k, &v, &block_table, &slots, &positions}, [&] {
    if (k.numel() == 0) return;
    const auto apart = [&](const Tensor& x) { return indexing::apart(indexing::apart(x, k_cache), v_cache); };
    const Tensor from_k = apart(k), from_v = apart(v);
    const RowTensors tensors(block_table, slots, positions);
    backend(k).paged->write({array(k_cache), array(v_cache), array(from_k), array(from_v), tensors.rows()},
                            current_stream(k.device()));
  });
}

Tensor paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& block_table,
                       const Tensor& slots, const Tensor& positions, std::optional<double> scale) {
  const Running running("paged_attention");
  const Named others[] = {{&k_cache, "k_cache"}, {&v_cache, "v_cache"}};
  require_like({&q, "q"}, others);
  require_caches(k_cache, v_cache);
  const int64_t shared = k_cache.size(2);
  require<ShapeError>(
      q.dim() == 3 && q.size(2) == k_cache.size(3) && q.size(2) > 0 && shared > 0 && q.size(1) % shared == 0,
      "q does not fit the caches; got q: {}, k_cache: {}; expected [n, heads, d], heads a multiple of "
      "the cache's and d at least 1",
      q, k_cache);
  require_rows(q, block_table, slots, positions);
  const double by = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  return door::call(
      Op::paged_attention, {&q, &k_cache, &v_cache, &block_table, &slots, &positions},
      [&] {
        const Tensor out = empty(q.sizes(), q.options());
        if (q.numel() == 0) return out;
        constexpr const char* kWhy = "the heads of an operand have no unit stride, or the caches unequal strides";
        const bool as_they_lie = readable(k_cache) && readable(v_cache) && k_cache.strides() == v_cache.strides();
        const Tensor from_q = readable(q) ? q : row_major(q, kWhy),
                     from_k = as_they_lie ? k_cache : row_major(k_cache, kWhy),
                     from_v = as_they_lie ? v_cache : row_major(v_cache, kWhy);
        const RowTensors tensors(block_table, slots, positions);
        backend(q).paged->attention(
            {array(out), heads_of(from_q), heads_of(from_k), heads_of(from_v), tensors.rows(), by},
            current_stream(q.device()));
        return out;
      },
      by);
}

}  // namespace lorry
