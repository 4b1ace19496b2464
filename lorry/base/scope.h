#pragma once

// Scopes say from which part of a program operators are called. A scope is an object on the stack. Listeners to calls
// (a profiler, a tracer) ask for the thread's innermost scope. Modules open a scope in each call; programs may open
// their own:
//
//   const Scope evaluation("evaluation");
//
// Opening and closing a scope costs two writes, and a test of whether a profiler listens.

#include <string>

#include "lorry/base/span.h"

namespace lorry {

class Scope {
 public:
  /// Returns a scope's name, such as the path of a module in its tree: "blocks.0.attention".
  using Describe = std::string (*)(const void* object);

  /// name: a string literal.
  explicit Scope(const char* name) : Scope(name, nullptr) {}
  /// `describe(object)` returns the name, and is called only if somebody asks for it. The object must outlive the
  /// scope. Among nested scopes with the same function, path() contains only the innermost name, because that name
  /// already contains the outer ones.
  Scope(const void* object, Describe describe) : object_(object), describe_(describe), outer_(t_innermost) {
    t_innermost = this;
    if (detail::t_spans_heard && !is_inside_itself()) [[unlikely]]
      heard_ = detail::begin_span({.kind = SpanKind::scope, .object = this});
  }
  ~Scope() {
    if (heard_) [[unlikely]]
      detail::end_span({.kind = SpanKind::scope, .object = this});
    t_innermost = outer_;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// The innermost scope of this thread; null outside all scopes.
  static const Scope* innermost() { return t_innermost; }
  const Scope* outer() const { return outer_; }
  /// Whether it belongs to an object that has a path, such as a module.
  bool is_of_object() const { return describe_ != nullptr; }
  std::string name() const {
    return describe_ != nullptr ? describe_(object_) : std::string(static_cast<const char*>(object_));
  }
  /// The names of this thread's scopes, outermost first: "evaluation/blocks.0.attention"; empty outside all scopes.
  static std::string path();

 private:
  /// Calling a module opens a scope, and its forward() may open the same one again: a profiler hears only the first.
  bool is_inside_itself() const {
    return describe_ != nullptr && outer_ != nullptr && outer_->object_ == object_ && outer_->describe_ == describe_;
  }

  static inline constinit thread_local const Scope* t_innermost = nullptr;
  const void* object_;
  Describe describe_;
  const Scope* outer_;
  bool heard_ = false;  ///< a profiler has heard of it
};

}  // namespace lorry
