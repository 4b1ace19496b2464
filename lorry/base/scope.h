#pragma once

// Scopes: which part of the program operators are called from. A scope is an object on the stack; the innermost one of
// a thread is found from what hears of calls (a profiler, a tracer). Modules open one in each call; programs may open
// their own:
//
//   const Scope evaluation("evaluation");
//
// Opening and closing one costs two writes.

#include <string>

namespace lorry {

class Scope {
 public:
  /// Says what a scope is, such as the path of a module in its tree: "blocks.0.attention".
  using Describe = std::string (*)(const void* object);

  /// name: a literal.
  explicit Scope(const char* name) : Scope(name, nullptr) {}
  /// `describe(object)` gives the name, when somebody asks for it. The object outlives the scope. Of scopes with the
  /// same function only the innermost one is named: its name says where in the others it lies.
  Scope(const void* object, Describe describe) : object_(object), describe_(describe), outer_(t_innermost) {
    t_innermost = this;
  }
  ~Scope() { t_innermost = outer_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Of this thread; null outside all scopes.
  static const Scope* innermost() { return t_innermost; }
  const Scope* outer() const { return outer_; }
  std::string name() const {
    return describe_ != nullptr ? describe_(object_) : std::string(static_cast<const char*>(object_));
  }
  /// The names of this thread's scopes, outermost first: "evaluation/blocks.0.attention"; empty outside all scopes.
  static std::string path();

 private:
  static inline constinit thread_local const Scope* t_innermost = nullptr;
  const void* object_;
  Describe describe_;
  const Scope* outer_;
};

}  // namespace lorry
