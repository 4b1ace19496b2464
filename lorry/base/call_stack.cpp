#include "lorry/base/call_stack.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "lorry/base/class_name.h"
#if LORRY_WITH_LIBDW
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#endif

namespace lorry {
namespace {

/// The addresses low <= x < end.
struct Range {
  uintptr_t low = 0, end = 0;
};

/// The address range of this thread's stack; empty if the system does not report it.
Range find_stack() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uintptr_t>(low);
  return known ? Range{begin, begin + bytes} : Range{};
}

std::string name_of_symbol(const char* symbol) {
  if (symbol == nullptr) return {};
  return std::string_view(symbol).starts_with("_Z") ? detail::demangled(symbol) : symbol;
}

#if LORRY_WITH_LIBDW
/// The symbols and lines of this process's modules.
class Modules {
 public:
  /// The modules of this process. A forked child makes its own object, because the parent's may be locked, or half
  /// read, by a thread that does not exist in the child. Never destroyed: threads may use it while the process ends.
  static Modules& instance() {
    static constinit std::atomic<Modules*> current{nullptr};
    Modules* modules = current.load(std::memory_order_acquire);
    while (modules == nullptr || modules->process_ != getpid()) {
      auto* const made = new Modules(modules);
      if (current.compare_exchange_strong(modules, made, std::memory_order_acq_rel)) return *made;
      delete made;
    }
    return *modules;
  }
  ~Modules() { dwfl_end(session_); }

  /// The line of an address, and, if the function there is inlined, the lines of the calls that it was inlined from,
  /// innermost first.
  std::vector<SourceLine> at(uintptr_t address) {
    const std::scoped_lock lock(mutex_);
    Dwfl_Module* module = dwfl_addrmodule(session_, address);
    if (module == nullptr) {  // the first call, or a library opened since the last one
      dwfl_report_begin_add(session_);
      dwfl_linux_proc_report(session_, getpid());
      dwfl_report_end(session_, nullptr, nullptr);
      module = dwfl_addrmodule(session_, address);
    }
    if (module == nullptr) return {{}};
    SourceLine found{.function = name_of_symbol(dwfl_module_addrname(module, address)), .file = {}};
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = unit_of(module, address, bias);
    if (unit == nullptr) return {found};
    if (Dwarf_Line* line = dwarf_getsrc_die(unit, address - bias)) {
      dwarf_lineno(line, &found.line);
      if (const char* file = dwarf_linesrc(line, nullptr, nullptr)) found.file = file;
    }
    std::vector<SourceLine> lines{found};
    // dwarf_getscopes stops at the innermost inlined function; dwarf_getscopes_die walks out of all of them.
    Dwarf_Die* scopes = nullptr;
    int count = dwarf_getscopes(unit, address - bias, &scopes);
    if (count <= 0) return lines;
    Dwarf_Die innermost = scopes[0];
    std::free(std::exchange(scopes, nullptr));
    count = dwarf_getscopes_die(&innermost, &scopes);
    for (int i = 0; i < count; ++i)
      if (dwarf_tag(&scopes[i]) == DW_TAG_inlined_subroutine) add_line_of_call(unit, &scopes[i], lines);
    std::free(scopes);
    return lines;
  }

 private:
  explicit Modules(const Modules* parents) : parents_(parents) {}

  /// Adds the line that an inlined function was called from, if it is known.
  static void add_line_of_call(Dwarf_Die* unit, Dwarf_Die* inlined, std::vector<SourceLine>& lines) {
    const auto number = [&](unsigned attribute, Dwarf_Word& value) {
      Dwarf_Attribute found;
      return dwarf_formudata(dwarf_attr(inlined, attribute, &found), &value) == 0;
    };
    Dwarf_Files* files = nullptr;
    size_t count = 0;
    Dwarf_Word file = 0, line = 0;
    if (!number(DW_AT_call_file, file) || !number(DW_AT_call_line, line) ||
        dwarf_getsrcfiles(unit, &files, &count) != 0)
      return;
    if (const char* path = dwarf_filesrc(files, file, nullptr, nullptr))
      lines.push_back({.function = lines[0].function, .file = path, .line = static_cast<int>(line)});
  }

  /// The compilation unit of an address; null without line information.
  static Dwarf_Die* unit_of(Dwfl_Module* module, Dwarf_Addr address, Dwarf_Addr& bias) {
    if (Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias)) return unit;
    Dwarf_Die* unit = nullptr;  // Clang writes no address table (.debug_aranges), so search all units
    while ((unit = dwfl_module_nextcu(module, unit, &bias)) != nullptr)
      if (dwarf_haspc(unit, address - bias) > 0) break;
    return unit;
  }

  // Finds debug information by build id only; libdw's default callback may download it from a server.
  static constexpr Dwfl_Callbacks kCallbacks{.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = dwfl_build_id_find_debuginfo,
                                             .section_address = nullptr,
                                             .debuginfo_path = nullptr};
  /// the parent process's object, referenced so that it is not reported as a leak
  [[maybe_unused]] const Modules* parents_;
  const pid_t process_ = getpid();
  std::mutex mutex_;
  Dwfl* session_ = dwfl_begin(&kCallbacks);
};
#endif

/// Whether a line is Lorry's or the standard library's.
bool is_internal(const SourceLine& line) {
  constexpr std::string_view kThisFile = "base/call_stack.cpp", kPath = __FILE__;
  constexpr std::string_view kSources = kPath.substr(0, kPath.size() - kThisFile.size());
  if (!line.file.empty() && kSources.starts_with('/'))  // otherwise the paths of the build were mapped to others
    return line.file.starts_with(kSources) || line.file.find("/include/lorry/") != std::string::npos ||
           line.file.find("/include/c++/") != std::string::npos;
  const std::string name = qualified_name(line.function);
  return name.empty() || name.starts_with("lorry::") || name.starts_with("std::") || name.starts_with("_") ||
         name == "start_thread" || name == "clone" || name == "clone3";
}

}  // namespace

// Not sanitized, because it reads saved registers on the stack, which are not objects of the program.
#if defined(__x86_64__) || defined(__aarch64__)
[[gnu::noinline]] __attribute__((no_sanitize("address", "thread", "undefined"))) int call_stack(
    std::span<const void*> frames) noexcept {
  static constinit thread_local Range stack;
  if (stack.end == 0) stack = find_stack();
  size_t count = 0;
  // A frame starts with the address of the caller's frame, then the return address. In code without frame pointers the
  // register holds something else, so an address is followed only if it is on the stack and higher than the last one.
  uintptr_t last = 0, at = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  while (count < frames.size() && at > last && at >= stack.low && at < stack.end &&
         stack.end - at >= 2 * sizeof(void*) && at % alignof(void*) == 0) {
    const auto* frame = reinterpret_cast<const uintptr_t*>(at);
    if (frame[1] == 0) break;
    frames[count++] = reinterpret_cast<const void*>(frame[1]);
    last = at;
    at = frame[0];
  }
  return static_cast<int>(count);
}
#else
int call_stack(std::span<const void*>) noexcept { return 0; }
#endif

std::vector<const void*> call_stack() {
  const void* frames[17];
  const int count = call_stack(frames);
  return count > 1 ? std::vector(frames + 1, frames + count) : std::vector<const void*>();
}

std::vector<SourceLine> source_lines(const void* address) {
  // The address of the call itself. The instruction after it may belong to another line, or to another function if the
  // call does not return.
  const uintptr_t call = reinterpret_cast<uintptr_t>(address) - 1;
#if LORRY_WITH_LIBDW
  return Modules::instance().at(call);
#else
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(call), &info);
  return {{.function = name_of_symbol(info.dli_sname), .file = {}}};
#endif
}

SourceLine source_line(const void* address) { return source_lines(address)[0]; }

SourceLine calling_line(std::span<const void* const> frames) {
  for (const void* frame : frames)
    for (SourceLine& line : source_lines(frame))
      if (!is_internal(line)) return std::move(line);
  return {};
}

std::string qualified_name(std::string_view function) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  std::string name;
  int depth = 0;
  for (size_t i = 0; i < function.size(); ++i) {
    if (function.substr(i).starts_with(kAnonymous)) {
      name += "anonymous";
      i += kAnonymous.size() - 1;
    } else if (function[i] == '<') {
      ++depth;
    } else if (function[i] == '>') {
      --depth;
    } else if (depth <= 0) {
      if (function[i] == '(') break;
      name += function[i];
    }
  }
  return name.substr(name.rfind(' ') + 1);
}

std::string describe(const SourceLine& line) {
  return line.file.empty() ? qualified_name(line.function) : line.file + ":" + std::to_string(line.line);
}

}  // namespace lorry
