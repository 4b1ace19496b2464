#pragma once

// Every optimizer's rule, with every number of states that it can have: kernels are made from this list and from
// nowhere else.

#include "lorry/formula/adadelta.h"
#include "lorry/formula/adagrad.h"
#include "lorry/formula/adamax.h"
#include "lorry/formula/adamw.h"
#include "lorry/formula/asgd.h"
#include "lorry/formula/lion.h"
#include "lorry/formula/nadam.h"
#include "lorry/formula/radam.h"
#include "lorry/formula/rmsprop.h"
#include "lorry/formula/rprop.h"
#include "lorry/formula/sgd.h"

namespace lorry::formula {

template <class... Rule>
struct RuleList {
  static constexpr int kCount = sizeof...(Rule);

  /// Where a rule stands; -1 for one that is not in the list, such as a user's own.
  template <class Wanted>
  static constexpr int index() {
    int at = 0, found = -1;
    ((std::is_same_v<Rule, Wanted> ? void(found = at++) : void(++at)), ...);
    return found;
  }
  /// One T<Rule> for each rule.
  template <template <class> class T>
  struct Table : T<Rule>... {
    template <class Wanted>
    constexpr T<Wanted>& of() {
      return *this;
    }
    template <class Wanted>
    constexpr const T<Wanted>& of() const {
      return *this;
    }
  };
  /// Calls f.operator()<Rule>() for each.
  template <class F>
  static constexpr void each(F&& f) {
    (f.template operator()<Rule>(), ...);
  }
};

using Rules =
    RuleList<AdamW<false>, AdamW<true>, Sgd<false>, Sgd<true>, Adamax, NAdam, RAdam, Adagrad, Adadelta,
             RMSprop<false, false>, RMSprop<false, true>, RMSprop<true, false>, RMSprop<true, true>, Rprop, Asgd, Lion>;

}  // namespace lorry::formula
