#include "lorry/foreach/list_plan.h"

#include <algorithm>
#include <numeric>

#include "lorry/base/events.h"
#include "lorry/base/modes.h"
#include "lorry/ops/array.h"
#include "lorry/tensor/changes.h"

namespace lorry::foreach {
namespace {

constexpr int64_t kUndefined = -1;

int64_t address(const Tensor& x) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data_ptr())); }
/// Rank, dtype and device in a number.
int64_t kind(const Tensor& x) {
  const Device device = x.device();
  return x.dim() | static_cast<int64_t>(x.dtype()) << 8 | static_cast<int64_t>(device.type) << 16 |
         static_cast<int64_t>(device.index) << 24;
}

}  // namespace

ListPlan::ListPlan(int roles, std::span<const int8_t> arrays, Strategy strategy)
    : roles_(roles), strategy_(strategy), seen_epoch_(last_reshaped()) {
  lists_.push_back({.roles = {arrays.begin(), arrays.end()}, .with_copies = true, .of_groups = {}});
}

// ---- making it ------------------------------------------------------------------------------------------------------

void ListPlan::reserve(size_t entries) {
  positions_.reserve(entries);
  fact_starts_.reserve(entries * static_cast<size_t>(roles_));
  facts_.reserve(entries * static_cast<size_t>(roles_) * 6);  // of matrices
}

uint32_t ListPlan::group(Device device, std::span<const DType> dtypes, uint64_t tag) {
  Lists& first = lists_.front();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const kernels::List& list = first.of_groups[g];
    if (groups_[g].tag != tag || groups_[g].device != device || static_cast<size_t>(list.arrays()) != dtypes.size())
      continue;
    bool same = true;
    for (size_t k = 0; k < dtypes.size(); ++k) same = same && list.dtype(static_cast<int>(k)) == dtypes[k];
    if (same) return static_cast<uint32_t>(g);
  }
  groups_.push_back({device, tag, {}});
  first.of_groups.emplace_back(device, dtypes, strategy_);
  return static_cast<uint32_t>(groups_.size() - 1);
}

void ListPlan::add(uint32_t group, std::span<const Tensor* const> tensors, Words words) {
  const auto entry = static_cast<uint32_t>(size());
  require<ValueError>(entry < kernels::kMaxWord, "too many tensors; expected at most {}", kernels::kMaxWord);
  Group& own = groups_[group];
  Lists& first = lists_.front();
  kernels::List& list = first.of_groups[group];
  kernels::ListEntry made{.word = words.word, .number = words.number};
  for (const Tensor* x : tensors) {
    remember(x);
    if (made.count == 0 && x != nullptr && x->defined()) made.count = x->numel();
  }
  for (int a = 0; a < list.arrays(); ++a) {
    const int8_t role = first.roles[static_cast<size_t>(a)];
    if (role == kNoRole) continue;
    if (const Tensor* x = tensors[static_cast<size_t>(role)]; x != nullptr && x->defined()) made.at[a] = x->data_ptr();
  }
  positions_.push_back({static_cast<int32_t>(group), static_cast<uint32_t>(own.entries.size())});
  own.entries.push_back(entry);
  list.add(made);
}

void ListPlan::add_ungrouped(std::span<const Tensor* const> tensors) {
  for (const Tensor* x : tensors) remember(x);
  ungrouped_.push_back(static_cast<uint32_t>(size()));
  positions_.push_back({-1, static_cast<uint32_t>(ungrouped_.size() - 1)});
}

size_t ListPlan::add_lists(std::initializer_list<int8_t> arrays, bool with_copies) {
  Lists made{.roles = arrays, .with_copies = with_copies, .of_groups = {}};
  const auto& roles = lists_.front().roles;
  std::vector<int> from;  // the array of the first list, of each one here
  for (const int8_t role : arrays) from.push_back(static_cast<int>(std::ranges::find(roles, role) - roles.begin()));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const kernels::List& whole = list(g);
    std::vector<DType> dtypes;
    for (const int a : from) dtypes.push_back(whole.dtype(a));
    kernels::List& part = made.of_groups.emplace_back(groups_[g].device, dtypes, strategy_);
    for (size_t i = 0; i < whole.entries().size(); ++i) {
      kernels::ListEntry entry = whole.entries()[i];
      std::ranges::fill(entry.at, nullptr);
      for (size_t a = 0; a < from.size(); ++a) entry.at[a] = whole.entries()[i].at[from[a]];
      const auto is_copied = [&](int8_t role) {
        return copy_of(static_cast<uint32_t>(role), groups_[g].entries[i]) != nullptr;
      };
      if (!with_copies && std::ranges::any_of(arrays, is_copied)) entry.count = 0;
      part.add(entry);
    }
  }
  lists_.push_back(std::move(made));
  return lists_.size() - 1;
}

void ListPlan::ungroup_all() {
  groups_.clear();
  lists_.resize(1);
  lists_.front().of_groups.clear();
  copies_.clear();
  ungrouped_.resize(size());
  std::iota(ungrouped_.begin(), ungrouped_.end(), 0u);
  for (uint32_t e = 0; e < size(); ++e) positions_[e] = {-1, e};
}

// ---- keeping it up to date ------------------------------------------------------------------------------------------

void ListPlan::remember(const Tensor* x) {
  fact_starts_.push_back(static_cast<uint32_t>(facts_.size()));
  if (x == nullptr) return;
  if (!x->defined()) return facts_.insert(facts_.end(), {0, kUndefined}), void();
  const Layout& layout = x->layout();
  facts_.insert(facts_.end(), {address(*x), kind(*x)});
  facts_.insert(facts_.end(), layout.sizes, layout.sizes + layout.rank);
  facts_.insert(facts_.end(), layout.strides, layout.strides + layout.rank);
}

ListPlan::Change ListPlan::compare(int64_t* known, const Tensor& x) const {
  if (!x.defined()) return known[1] == kUndefined ? Change::none : Change::layout;
  if (known[1] != kind(x)) return Change::layout;
  const Layout& layout = x.layout();
  for (int d = 0; d < layout.rank; ++d)
    if (known[2 + d] != layout.sizes[d] || known[2 + layout.rank + d] != layout.strides[d]) return Change::layout;
  const int64_t now = address(x);
  return std::exchange(known[0], now) == now ? Change::none : Change::addresses;
}

void ListPlan::set_address(uint32_t role, uint32_t entry, const Tensor& x, bool is_copy) {
  const Position at = positions_[entry];
  if (at.group < 0) return;
  for (Lists& lists : lists_) {
    if (is_copy && !lists.with_copies) continue;  // it has no elements there
    kernels::List& list = lists.of_groups[static_cast<size_t>(at.group)];
    for (int a = 0; a < list.arrays(); ++a)
      if (lists.roles[static_cast<size_t>(a)] == static_cast<int8_t>(role)) list.move(at.index, a, x.data_ptr());
  }
}

ListPlan::Change ListPlan::update(uint32_t role, uint32_t entry, const Tensor& x) {
  const Change change = compare(&facts_[fact_starts_[entry * static_cast<size_t>(roles_) + role]], x);
  if (change != Change::addresses) return change;
  if (Copy* const copied = copy_of(role, entry))
    copied->original = x;
  else
    set_address(role, entry, x, false);
  return change;
}

bool ListPlan::is_current() const { return seen_epoch_ == last_reshaped(); }

ListPlan::Change ListPlan::refresh(std::span<const std::span<const Tensor>> roles) {
  const uint64_t now = last_reshaped();
  if (seen_epoch_ == now) return Change::none;
  seen_epoch_ = 0;
  moved_.clear();
  for (uint32_t role = 0; role < roles.size(); ++role)
    for (uint32_t e = 0; e < roles[role].size(); ++e) {
      const Change change = update(role, e, roles[role][e]);
      if (change == Change::layout) return change;
      if (change == Change::addresses) moved_.push_back({role, e});
    }
  seen_epoch_ = now;
  return moved_.empty() ? Change::none : Change::addresses;
}

// ---- dense copies ---------------------------------------------------------------------------------------------------

/// Copies are in the order of their entries.
ListPlan::Copy* ListPlan::copy_of(uint32_t role, uint32_t entry) {
  for (auto x = std::ranges::lower_bound(copies_, entry, {}, &Copy::entry); x != copies_.end() && x->entry == entry;
       ++x)
    if (x->role == role) return &*x;
  return nullptr;
}

void ListPlan::use_copy(uint32_t role, const Tensor& original, Tensor copy) {
  const auto entry = static_cast<uint32_t>(size() - 1);
  const bool made_here = !copy.defined();
  copies_.push_back({role, entry, original, std::move(copy), made_here});
  if (!made_here) set_address(role, entry, copies_.back().copy, true);
}

void ListPlan::fill_copies() {
  for (Copy& x : copies_) {
    if (!x.made_here) {
      x.copy.copy_(x.original);
      continue;
    }
    events::emit(events::Kind::hidden_copy, running_or("ListPlan"), "a tensor that is not dense is copied first");
    x.copy = x.original.contiguous();
    set_address(x.role, x.entry, x.copy, true);
  }
}

void ListPlan::write_back(uint32_t role, uint32_t group) const {
  for (const Copy& x : copies_)
    if (x.role == role && positions_[x.entry].group == static_cast<int32_t>(group)) x.original.copy_(x.copy);
}

void ListPlan::release_copies() {
  for (Copy& x : copies_)
    if (x.made_here) x.copy = Tensor();
}

}  // namespace lorry::foreach
