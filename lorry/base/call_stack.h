#pragma once

// Which source lines of a program made a call. A listener records the return addresses during the call, which costs a
// nanosecond or two each, and looks up their lines when somebody reads them:
//
//   const void* frames[32];
//   const int count = call_stack(frames);
//   ...
//   for (const void* frame : std::span(frames).first(count)) fmt::print("{}\n", source_line(frame).function);
//
// Lorry is built with frame pointers. Build a program with -fno-omit-frame-pointer to see its functions too, and with
// -g1 or more to see their lines.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lorry {

/// Fills `frames` with the return addresses of the calling thread, innermost first, and returns how many there are. The
/// first lies in the function that called call_stack. A function compiled without frame pointers hides its caller or
/// ends the list. Returns 0 on a stack that is not the thread's own (a signal handler's, a fiber's), and on processors
/// other than x86-64 and AArch64.
int call_stack(std::span<const void*> frames) noexcept;

/// The innermost return addresses of the calling thread, of which the first lies in the function that called it.
std::vector<const void*> call_stack();

struct SourceLine {
  std::string function;  ///< the demangled name; empty if the module has no symbol there
  std::string file;      ///< empty without line information, or if Lorry was built without libdw
  int line = 0;          ///< 0 without a file; for a call in an inlined function: the line in that function
};

/// The source line of the call that returns to `address`, an entry of call_stack. The first look-up in a module reads
/// its symbols and lines, which takes milliseconds. May be called on any thread.
SourceLine source_line(const void* address);

/// The same, and behind it the lines of the calls from which the function there was inlined, innermost first.
std::vector<SourceLine> source_lines(const void* address);

/// The innermost line of a program that uses Lorry, among the entries of call_stack: Lorry's own functions and the
/// standard library's are passed over, also where they are inlined. Without line information a name is all that there
/// is; nothing if every frame is Lorry's or has no name.
SourceLine calling_line(std::span<const void* const> frames);

/// A function's qualified name, without template arguments, parameters and return type:
/// "std::vector<int> lorry::f<int>(int)" is "lorry::f".
std::string qualified_name(std::string_view function);

/// "train.cpp:31", or without a line the function's qualified name, "user::train"; empty if both are unknown.
std::string describe(const SourceLine& line);

}  // namespace lorry
