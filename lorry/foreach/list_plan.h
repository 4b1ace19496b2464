#pragma once

// ListPlan: how the tensors of many entries are handed to kernels that take lists. Making one takes time proportional
// to the number of entries; afterwards a changed address is patched in the entry that has it, and nothing else is done
// again. Foreach operators, norms and optimizer steps are its clients.
//
//   entry      what one tensor's operator would take: operands and result, or a parameter, its gradient and its states
//   role       a tensor's part in its entry: role 0, 1, ... An undefined tensor is a null address
//   group      the entries of one device, one combination of dtypes and one tag, which the client chooses. One kernel
//              call takes them all
//   position   an entry's group and its index there. An entry that no kernel can take is ungrouped
//   lists      what kernels read: one kernels::List for each group, with the tiles and the Strategy. A plan says which
//              array of a list has which role. It may have further lists of fewer roles, such as gradients alone
//
// A client adds entry by entry and then keeps the plan up to date. An optimizer's family, for example:
//
//   ListPlan plan(5, {kParam, kGrad, kMean, kVar, kMaster}, strategy);
//   for (each parameter) {
//     const Tensor* roles[] = {&param, &grad, &mean, &var, &master};
//     if (!grad.defined()) { plan.add_ungrouped(roles); continue; }
//     plan.add(plan.group(param.device(), dtypes), roles, {.word = hyper_block, .number = number_of_parameter});
//     if (!param.layout().is_dense()) plan.use_copy(kParam, param, copy);
//   }
//   const size_t gradients = plan.add_lists({kGrad});                          // for the norm: plan.list(g, gradients)
//
//   before a step:   for (each gradient that was replaced)
//                      if (plan.update(kGrad, e, grad) == ListPlan::Change::layout) -> make the plan anew
//                    plan.fill_copies();
//   the step:        step_kernel(plan.list(g)), plan.write_back(kParam, g) for each group g

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "lorry/kernels/common/list.h"
#include "lorry/tensor/tensor.h"

namespace lorry::foreach {

class ListPlan {
 public:
  static constexpr int kMaxRoles = kernels::kMaxArrays;
  /// An array of a list that is no role: its address is null until it is given to the list.
  static constexpr int8_t kNoRole = -1;

  struct Group {
    Device device;
    uint64_t tag;
    std::vector<uint32_t> entries;
  };
  struct Position {
    int32_t group;   ///< -1: ungrouped
    uint32_t index;  ///< in the group
  };
  /// What changed about tensors since they were added or last compared. `addresses`: they lie elsewhere, and the lists
  /// have the new addresses. `layout`: a size, stride, dtype or device changed, or a tensor became defined or
  /// undefined; the plan must be made again.
  enum class Change : uint8_t { none, addresses, layout };
  /// What an entry has beside its tensors: ListEntry::word and ListEntry::number.
  struct Words {
    uint32_t word = 0, number = 0;
  };
  struct Moved {
    uint32_t role, entry;
  };

  /// A plan without entries. `arrays`: the role of each array of its lists. A group may have fewer arrays.
  ListPlan(int roles, std::initializer_list<int8_t> arrays, Strategy strategy)
      : ListPlan(roles, std::span(arrays.begin(), arrays.size()), strategy) {}
  ListPlan(int roles, std::span<const int8_t> arrays, Strategy strategy);

  // ---- making it, entry by entry ------------------------------------------------------------------------------------

  void reserve(size_t entries);
  /// The group of a device, the dtypes of its lists' arrays, and a tag; made if there is none.
  uint32_t group(Device device, std::span<const DType> dtypes, uint64_t tag = 0);
  /// Adds the next entry to a group, with as many elements as the first defined tensor. `tensors`: one for each role,
  /// null for a role without tensors. Tensors that a kernel walks together have one dense layout, or use_copy follows.
  void add(uint32_t group, std::span<const Tensor* const> tensors, Words words);
  /// Adds the next entry, to no list.
  void add_ungrouped(std::span<const Tensor* const> tensors);
  /// Kernels read and write a dense copy of the last added entry's tensor: `copy`, or if that is undefined a contiguous
  /// one that fill_copies makes and release_copies drops.
  void use_copy(uint32_t role, const Tensor& original, Tensor copy = {});
  /// Lists of other arrays over the same groups and entries; every role among `arrays` is one of the first lists'.
  /// `with_copies` false: entries whose tensor is read through a copy have no elements here. Returns their number.
  size_t add_lists(std::initializer_list<int8_t> arrays, bool with_copies = true);
  /// Takes every entry out of its group.
  void ungroup_all();

  // ---- what it holds ------------------------------------------------------------------------------------------------

  Strategy strategy() const { return strategy_; }
  std::span<const Group> groups() const { return groups_; }
  /// A group's list; `lists` is 0 or what add_lists returned.
  kernels::List& list(size_t group, size_t lists = 0) { return lists_[lists].of_groups[group]; }
  const kernels::List& list(size_t group, size_t lists = 0) const { return lists_[lists].of_groups[group]; }
  const Position& position(size_t entry) const { return positions_[entry]; }
  size_t size() const { return positions_.size(); }
  std::span<const uint32_t> ungrouped() const { return ungrouped_; }

  // ---- keeping it up to date ----------------------------------------------------------------------------------------

  /// True if no tensor in the process changed storage or strides since the last refresh (or since the plan was made).
  /// Then the tensors that the plan was made for lie where they did.
  bool is_current() const;
  /// Compares all tensors with those that the plan was made for, unless it is current. One span for each role; an empty
  /// one for a role without tensors.
  Change refresh(std::span<const std::span<const Tensor>> roles);
  /// Entries whose address changed in the last refresh that returned `addresses`.
  std::span<const Moved> moved() const { return moved_; }
  /// Compares one tensor, and gives its new address to the lists.
  Change update(uint32_t role, uint32_t entry, const Tensor& x);

  // ---- dense copies of tensors that are not -------------------------------------------------------------------------

  bool has_copies() const { return !copies_.empty(); }
  /// Copies the tensors into their copies, and emits an event for each copy that is made here. May run out of memory.
  void fill_copies();
  /// Copies a role's copies back into their tensors, for the entries of a group.
  void write_back(uint32_t role, uint32_t group) const;
  /// Drops the copies that fill_copies made. Their memory is released in the order of the stream.
  void release_copies();

 private:
  struct Lists {
    std::vector<int8_t> roles;  ///< of each array
    bool with_copies;
    std::vector<kernels::List> of_groups;
  };
  struct Copy {
    uint32_t role, entry;
    Tensor original, copy;
    bool made_here;
  };

  Copy* copy_of(uint32_t role, uint32_t entry);
  void set_address(uint32_t role, uint32_t entry, const Tensor& x, bool is_copy);
  void remember(const Tensor* x);
  Change compare(int64_t* known, const Tensor& x) const;

  int roles_;
  Strategy strategy_;
  uint64_t seen_epoch_;  ///< last_reshaped() when the tensors were last compared
  std::vector<Group> groups_;
  std::vector<Lists> lists_;
  std::vector<Position> positions_;
  std::vector<uint32_t> ungrouped_;
  std::vector<Copy> copies_;
  std::vector<Moved> moved_;
  /// What the lists rely on, for every role of every entry: address, kind, sizes and strides.
  std::vector<int64_t> facts_;
  std::vector<uint32_t> fact_starts_;
};

}  // namespace lorry::foreach
