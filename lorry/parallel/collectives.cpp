#include "lorry/parallel/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lorry/device/capture.h"
#include "lorry/ops/copy.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/ops.h"
#include "lorry/parallel/group.h"
#include "lorry/parallel/run_row.h"

namespace lorry::parallel {

using detail::Group;

namespace {

// ---- the door -------------------------------------------------------------------------------------------------------

void require_no_gradients(const door::Inputs& inputs) {
  if (!mode(kGradMode) || !inputs.requires_grad()) return;
  raise<GradError>("a collective has no gradient, and a tensor needs one; call it under NoGrad, or on detach()");
}

/// A call of this room that computes into `out`. in_place: these are the first inputs too.
template <class Compute, class... A>
void collective(Op op, bool in_place, std::span<const Tensor> out, const door::Inputs& inputs, const Compute& compute,
                const A&... attributes) {
  const Running running(name(op));
  require_no_gradients(inputs);
  for (const Tensor& x : out) door::require_writable(x);
  door::call_into<run>(op, in_place, out, inputs, compute, attributes...);
}

// ---- what a call is -------------------------------------------------------------------------------------------------

/// Numbers mixed into one (SplitMix64): ranks whose calls have the same signature make the same call.
class Signature {
 public:
  void add(uint64_t x) {
    state_ += x + 0x9e3779b97f4a7c15u;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
  }
  void add(const Tensor& x) {
    add(static_cast<uint64_t>(x.dtype()) << 8 | static_cast<uint64_t>(x.device().type));
    add(static_cast<uint64_t>(x.dim()));
    for (const int64_t size : x.sizes()) add(static_cast<uint64_t>(size));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

struct Call {
  Op op;
  Collective collective;
  Reduction reduction = Reduction::sum;
  int root = 0;
};

bool is_reduction(Collective x) { return x == Collective::all_reduce || x == Collective::reduce_scatter; }

std::string describe(const Call& call, std::span<const Tensor> list) {
  constexpr size_t kMost = 3;
  std::string text = name(call.op);
  if (is_reduction(call.collective)) text += fmt::format(" ({})", name(call.reduction));
  if (call.collective == Collective::broadcast) text += fmt::format(" from rank {}", call.root);
  if (list.empty()) return text;
  text += " of ";
  for (size_t i = 0; i < std::min(list.size(), kMost); ++i)
    text +=
        fmt::format("{}{} [{}]", i == 0 ? "" : ", ", lorry::name(list[i].dtype()), fmt::join(list[i].sizes(), ", "));
  if (list.size() > kMost) text += fmt::format(" and {} more", list.size() - kMost);
  return text;
}

/// Compares the call with those of the other ranks.
Noted note(Group& group, const Call& call, std::span<const Tensor> list) {
  if (is_reduction(call.collective))
    for (const Tensor& x : list)
      require<DTypeError>(x.dtype() != kBool, "booleans are not joined; got {}; convert to u8", x);
  group.require_own_gpu(list[0].device());
  Signature signature;
  const auto what = [&] { return describe(call, list); };
  const bool sends = call.collective == Collective::send;
  if (!sends && call.collective != Collective::receive) {
    signature.add(static_cast<uint64_t>(call.op) << 16 | static_cast<uint64_t>(call.reduction) << 8);
    signature.add(static_cast<uint64_t>(call.root));
  }
  signature.add(list.size());
  for (const Tensor& x : list) signature.add(x);
  if (sends) return group.note_transfer(group.rank(), call.root, signature.value(), what);
  if (call.collective == Collective::receive)
    return group.note_transfer(call.root, group.rank(), signature.value(), what);
  return group.note_call(signature.value(), what);
}

/// Defined tensors of one device, on which the group can work.
Device device_of(std::span<const Tensor> list) {
  if (list.empty()) raise<ValueError>("the list is empty; expected one tensor or more");
  for (const Tensor& x : list) {
    require<ValueError>(x.defined(), "a tensor is undefined");
    require<DeviceError>(x.device() == list[0].device(), "the tensors are on different devices; got {}, {}", list[0],
                         x);
    require<DeviceError>(x.device().is_cpu() || x.device().is_cuda(),
                         "a tensor has no memory that other ranks could have; got {}; expected the CPU or a GPU", x);
  }
  return list[0].device();
}

/// CPU tensors of a captured function would keep what the other ranks sent in the capture.
void require_capturable(Device device, const Group& group) {
  if (device.is_cpu() && group.size() > 1 && device::is_captured())
    device::refuse_capture("collective", "a CPU tensor goes to other ranks", "call it outside the captured function");
}

/// 1-d over the same elements, in order; a copy if they do not lie so.
Tensor flat(const Tensor& x) { return x.contiguous().view({x.numel()}); }

std::shared_ptr<Pending> begin(Group& group, const Call& call, const Noted& noted, std::span<const Tensor> in,
                               std::span<const Tensor> out) {
  const std::span<const Tensor> either = in.empty() ? out : in;
  const bool is_split = call.collective == Collective::reduce_scatter || call.collective == Collective::all_to_all;
  Job job{.collective = call.collective, .reduction = call.reduction, .root = call.root, .noted = noted};
  for (size_t i = 0; i < either.size(); ++i)
    job.pieces.push_back({.in = in.empty() ? Tensor() : in[i],
                          .out = out.empty() ? Tensor() : out[i],
                          .count = is_split ? either[i].numel() / group.size() : either[i].numel()});
  return group.transport(either[0].device()).begin(std::move(job));
}

void run_job(Group& group, const Call& call, const Noted& noted, std::span<const Tensor> in,
             std::span<const Tensor> out) {
  begin(group, call, noted, in, out)->wait();
}

// ---- sums in rank order ---------------------------------------------------------------------------------------------

/// parts: [size, n], by rank. Their sum in rank order, in f32 or f64.
Tensor sum_of_parts(const Tensor& parts) {
  const DType joined = parts.dtype() == kF64 ? kF64 : kF32;
  Tensor sum = parts.select(0, 0).to(joined);
  for (int64_t r = 1; r < parts.size(0); ++r) sum = sum.add(parts.select(0, r).to(joined));
  return sum.to(parts.dtype());
}

/// Sums x, flat, over the ranks so that the order of the additions is that of the ranks.
void sum_in_order(Group& group, const Noted& noted, const Tensor& x) {
  const int64_t size = group.size(), part = (x.numel() + size - 1) / size;
  const Tensor own = zeros({size * part}, {x.dtype(), x.device()});
  own.narrow(0, 0, x.numel()).copy_(x);
  const Tensor parts = empty_like(own);
  run_job(group, {Op::all_to_all, Collective::all_to_all}, noted, std::span(&own, 1), std::span(&parts, 1));
  const Tensor sum = sum_of_parts(parts.view({size, part}));
  run_job(group, {Op::all_gather, Collective::all_gather}, noted, std::span(&sum, 1), std::span(&own, 1));
  x.copy_(own.narrow(0, 0, x.numel()));
}

bool is_ordered(const Group& group, const Call& call, std::span<const Tensor> list) {
  // Of two, either order gives the same bits.
  return group.world().reproducible && group.size() > 2 && call.reduction == Reduction::sum &&
         std::ranges::any_of(list, [](const Tensor& x) { return is_floating(x.dtype()); });
}

// ---- in place -------------------------------------------------------------------------------------------------------

/// Calls work(flat tensors) for a list that is written in place, and brings the results back into those that are not
/// contiguous.
template <class Work>
void in_place(std::span<const Tensor> list, const Work& work) {
  std::vector<Tensor> packed;
  packed.reserve(list.size());
  for (const Tensor& x : list) packed.push_back(flat(x));
  work(std::span<const Tensor>(packed));
  for (size_t i = 0; i < list.size(); ++i)
    if (packed[i].data_ptr() != list[i].data_ptr()) list[i].copy_(packed[i].view(list[i].sizes()));
}

void all_reduce_list(std::span<const Tensor> list, const ProcessGroup& handle, Reduction reduction) {
  Group& group = handle.group();
  const Call call{Op::all_reduce, Collective::all_reduce, reduction};
  collective(
      call.op, true, list, door::Inputs(list),
      [&] {
        require_capturable(device_of(list), group);
        const Noted noted = note(group, call, list);
        if (group.size() == 1) return;
        in_place(list, [&](std::span<const Tensor> packed) {
          if (!is_ordered(group, call, list)) return run_job(group, call, noted, packed, packed);
          for (const Tensor& x : packed) sum_in_order(group, noted, x);
        });
      },
      handle.name(), static_cast<int64_t>(reduction));
}

void broadcast_list(std::span<const Tensor> list, const ProcessGroup& handle, int root) {
  Group& group = handle.group();
  const Call call{.op = Op::broadcast, .collective = Collective::broadcast, .root = root};
  collective(
      call.op, true, list, door::Inputs(list),
      [&] {
        require<ValueError>(root >= 0 && root < group.size(), "the root is no rank of the group; got {} of {}", root,
                            group.size());
        require_capturable(device_of(list), group);
        const Noted noted = note(group, call, list);
        if (group.size() > 1)
          in_place(list, [&](std::span<const Tensor> packed) { run_job(group, call, noted, packed, packed); });
      },
      handle.name(), static_cast<int64_t>(root));
}

// ---- into another tensor --------------------------------------------------------------------------------------------

/// A call from x into out, which has `out_numel` elements.
template <class Work, class... A>
void into(const Call& call, const Tensor& out, const Tensor& x, const ProcessGroup& handle, int64_t out_numel,
          const Work& work, const A&... attributes) {
  Group& group = handle.group();
  collective(
      call.op, false, std::span(&out, 1), {&x},
      [&] {
        const Tensor both[] = {x, out};
        require_capturable(device_of(both), group);
        require<DTypeError>(out.dtype() == x.dtype(), "out has another dtype than x; got out: {}, x: {}", out, x);
        require<ShapeError>(out.numel() == out_numel, "out has another number of elements; got {}; expected {} for {}",
                            out, out_numel, x);
        const Noted noted = note(group, call, std::span(&x, 1));
        const Tensor from = flat(x), to = out.is_contiguous() ? out.view({out.numel()})
                                                              : empty({out.numel()}, {out.dtype(), out.device()});
        if (group.size() == 1)
          to.copy_(from);
        else
          work(group, noted, from, to);
        if (!out.is_contiguous()) out.copy_(to.view(out.sizes()));
      },
      handle.name(), attributes...);
}

void require_parts(const char* op, const Tensor& x, int64_t size) {
  if (x.dim() == 0 || x.size(0) != size)
    raise_as<ShapeError>(op, "x has no part for each rank; got {}; expected [{}, ...]", x, size);
}

Dims without_first(const Tensor& x) {
  Dims sizes;
  for (int64_t i = 1; i < x.dim(); ++i) sizes.push_back(x.size(i));
  return sizes;
}

int peer_of(const ProcessGroup& group, int peer) {
  require<ValueError>(peer >= 0 && peer < group.size() && peer != group.rank(),
                      "this is no other rank of the group; got {} on rank {} of {}", peer, group.rank(), group.size());
  return peer;
}

}  // namespace

const char* name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::product:
      return "product";
    case Reduction::minimum:
      return "minimum";
    case Reduction::maximum:
      return "maximum";
  }
  return "?";
}

const Tensor& all_reduce_(const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  all_reduce_list(std::span(&x, 1), group, reduction);
  return x;
}
void all_reduce_(const std::vector<Tensor>& list, const ProcessGroup& group, Reduction reduction) {
  all_reduce_list(list, group, reduction);
}
const Tensor& all_reduce_out(const Tensor& out, const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  const Call call{Op::all_reduce, Collective::all_reduce, reduction};
  into(
      call, out, x, group, x.numel(),
      [&](Group& own, const Noted& noted, const Tensor& from, const Tensor& to) {
        if (!is_ordered(own, call, std::span(&from, 1)))
          return run_job(own, call, noted, std::span(&from, 1), std::span(&to, 1));
        to.copy_(from);
        sum_in_order(own, noted, to);
      },
      static_cast<int64_t>(reduction));
  return out;
}
Tensor all_reduce(const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  const Tensor out = empty(x.sizes(), {x.dtype(), x.device()});
  all_reduce_out(out, x, group, reduction);
  return out;
}

const Tensor& broadcast_(const Tensor& x, const ProcessGroup& group, int root) {
  broadcast_list(std::span(&x, 1), group, root);
  return x;
}
void broadcast_(const std::vector<Tensor>& list, const ProcessGroup& group, int root) {
  broadcast_list(list, group, root);
}

const Tensor& all_gather_out(const Tensor& out, const Tensor& x, const ProcessGroup& group) {
  const Call call{Op::all_gather, Collective::all_gather};
  into(call, out, x, group, x.numel() * group.size(),
       [&](Group& own, const Noted& noted, const Tensor& from, const Tensor& to) {
         run_job(own, call, noted, std::span(&from, 1), std::span(&to, 1));
       });
  return out;
}
Tensor all_gather(const Tensor& x, const ProcessGroup& group) {
  Dims sizes{group.size()};
  for (const int64_t size : x.sizes()) sizes.push_back(size);
  const Tensor out = empty(sizes, {x.dtype(), x.device()});
  all_gather_out(out, x, group);
  return out;
}

const Tensor& reduce_scatter_out(const Tensor& out, const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  const Call call{Op::reduce_scatter, Collective::reduce_scatter, reduction};
  require<ShapeError>(x.numel() % group.size() == 0, "reduce_scatter: x has no part for each of {} ranks; got {}",
                      group.size(), x);
  into(
      call, out, x, group, x.numel() / group.size(),
      [&](Group& own, const Noted& noted, const Tensor& from, const Tensor& to) {
        if (!is_ordered(own, call, std::span(&from, 1)))
          return run_job(own, call, noted, std::span(&from, 1), std::span(&to, 1));
        const Tensor parts = empty_like(from);
        run_job(own, {Op::all_to_all, Collective::all_to_all}, noted, std::span(&from, 1), std::span(&parts, 1));
        to.copy_(sum_of_parts(parts.view({own.size(), to.numel()})));
      },
      static_cast<int64_t>(reduction));
  return out;
}
Tensor reduce_scatter(const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  require_parts("reduce_scatter", x, group.size());
  const Tensor out = empty(without_first(x), {x.dtype(), x.device()});
  reduce_scatter_out(out, x, group, reduction);
  return out;
}

Tensor all_to_all(const Tensor& x, const ProcessGroup& group) {
  require_parts("all_to_all", x, group.size());
  const Call call{Op::all_to_all, Collective::all_to_all};
  const Tensor out = empty(x.sizes(), {x.dtype(), x.device()});
  into(call, out, x, group, x.numel(), [&](Group& own, const Noted& noted, const Tensor& from, const Tensor& to) {
    run_job(own, call, noted, std::span(&from, 1), std::span(&to, 1));
  });
  return out;
}

void send(const Tensor& x, const ProcessGroup& handle, int to) {
  Group& group = handle.group();
  collective(
      Op::send, false, {}, {&x},
      [&] {
        const Call call{.op = Op::send, .collective = Collective::send, .root = peer_of(handle, to)};
        require_capturable(device_of(std::span(&x, 1)), group);
        const Noted noted = note(group, call, std::span(&x, 1));
        const Tensor from = flat(x);
        run_job(group, call, noted, std::span(&from, 1), {});
      },
      handle.name(), static_cast<int64_t>(to));
}

const Tensor& receive_(const Tensor& x, const ProcessGroup& handle, int from) {
  Group& group = handle.group();
  collective(
      Op::receive, true, std::span(&x, 1), {&x},
      [&] {
        const Call call{.op = Op::receive, .collective = Collective::receive, .root = peer_of(handle, from)};
        require_capturable(device_of(std::span(&x, 1)), group);
        const Noted noted = note(group, call, std::span(&x, 1));
        in_place(std::span(&x, 1),
                 [&](std::span<const Tensor> packed) { run_job(group, call, noted, packed, packed); });
      },
      handle.name(), static_cast<int64_t>(from));
  return x;
}

void barrier(const ProcessGroup& handle) {
  collective(
      Op::barrier, false, {}, std::initializer_list<door::Input>{},
      [&] {
        if (handle.size() == 1) return;
        Group& group = handle.group();
        const Noted noted = group.note_call(Signature().value(), [] { return std::string("barrier"); });
        group.world().member->exchange(fmt::format("barrier (call {} of {})", noted.number, handle.name()),
                                       group.ranks(), "");
      },
      handle.name());
}

bool Begun::is_done() const { return pending_ == nullptr || pending_->is_done(); }

void Begun::wait_again() const {
  if (pending_ != nullptr) pending_->wait();
}

void Begun::wait() {
  if (pending_ == nullptr) return;
  const std::shared_ptr<Pending> pending = std::exchange(pending_, nullptr);
  const std::vector<Tensor> list = std::exchange(list_, {});
  pending->wait();
}

/// Begins a call that reads `in` and writes `out`, which are the same where it is in place.
struct Begin {
  template <class... A>
  static Begun call(const Call& call, bool in_place, const std::vector<Tensor>& out, const std::vector<Tensor>& in,
                    const ProcessGroup& handle, const A&... attributes) {
    Group& group = handle.group();
    Begun begun;
    collective(
        call.op, in_place, out, door::Inputs(in),
        [&] {
          std::vector<Tensor> all = in;
          all.insert(all.end(), out.begin(), out.end());
          require_capturable(device_of(all), group);
          for (const Tensor& x : all)
            require<ShapeError>(x.is_contiguous(), "a tensor of a call that is only begun is not contiguous; got {}",
                                x);
          for (size_t i = 0; i < in.size(); ++i) require_fits(call, out[i], in[i], group.size());
          const Noted noted = note(group, call, in);
          if (group.size() == 1) {
            for (size_t i = 0; i < in.size(); ++i)
              if (in[i].data_ptr() != out[i].data_ptr())
                out[i].view({out[i].numel()}).copy_(in[i].view({in[i].numel()}));
            return;
          }
          begun.pending_ = begin(group, call, noted, in, out);
          begun.list_ = std::move(all);
        },
        handle.name(), attributes...);
    return begun;
  }

 private:
  static void require_fits(const Call& call, const Tensor& out, const Tensor& x, int64_t size) {
    require<DTypeError>(out.dtype() == x.dtype(), "out has another dtype than x; got out: {}, x: {}", out, x);
    const int64_t more = call.collective == Collective::all_gather ? size : 1,
                  fewer = call.collective == Collective::reduce_scatter ? size : 1;
    require<ShapeError>(out.numel() * fewer == x.numel() * more,
                        "out has another number of elements than {} ranks give; got out: {}, x: {}", size, out, x);
  }
};

Begun begin_all_reduce(const std::vector<Tensor>& list, const ProcessGroup& group, Reduction reduction) {
  return Begin::call({Op::all_reduce, Collective::all_reduce, reduction}, true, list, list, group,
                     static_cast<int64_t>(reduction));
}
Begun begin_reduce_scatter(const Tensor& out, const Tensor& x, const ProcessGroup& group, Reduction reduction) {
  return Begin::call({Op::reduce_scatter, Collective::reduce_scatter, reduction}, false, {out}, {x}, group,
                     static_cast<int64_t>(reduction));
}
Begun begin_all_gather(const Tensor& out, const Tensor& x, const ProcessGroup& group) {
  return Begin::call({Op::all_gather, Collective::all_gather}, false, {out}, {x}, group);
}

}  // namespace lorry::parallel
