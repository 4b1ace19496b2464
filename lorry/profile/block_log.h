#pragma once

// Counts the blocks of one allocator that this thread takes and gives back, and who took them. Several observers cannot
// listen to allocators at once, so a log hands on what it hears to the observer before it.

#include <cstdint>
#include <string>
#include <unordered_map>

#include "lorry/memory/observer.h"

namespace lorry::profile {

class BlockLog {
 public:
  struct Block {
    int64_t bytes;
    int64_t number;    ///< of the blocks in the order in which they were taken
    std::string path;  ///< Scope::path()
  };
  struct Peak {
    int64_t bytes = 0;
    const char* phase = "";    ///< set_phase
    const char* made_by = "";  ///< the operator
    std::string path = {};
  };

  /// allocator: its name (BlockView). size(bytes): what a block of that many bytes counts. Only one log at a time in a
  /// thread.
  BlockLog(std::string allocator, int64_t (*size)(int64_t bytes));
  ~BlockLog();
  BlockLog(const BlockLog&) = delete;
  BlockLog& operator=(const BlockLog&) = delete;

  /// phase: a string literal.
  void set_phase(const char* phase) { phase_ = phase; }
  int64_t bytes() const { return bytes_; }
  /// The most so far, since the last reset_peak().
  const Peak& peak() const { return peak_; }
  void reset_peak() { peak_ = {.bytes = bytes_, .phase = phase_}; }
  /// How many blocks were taken so far.
  int64_t taken() const { return taken_; }
  /// By address.
  const std::unordered_map<const void*, Block>& blocks() const { return blocks_; }
  /// Throws ValueError if blocks may have been missed: a session began or ended meanwhile, or there was no memory for
  /// the log.
  void require_complete(const char* where) const;

 private:
  static void allocated(const memory::BlockView& block) noexcept;
  static void released(const memory::BlockView& block) noexcept;
  void add(const memory::BlockView& block) noexcept;
  void remove(const memory::BlockView& block) noexcept;

  static const memory::Observer kObserver;
  const std::string allocator_;
  int64_t (*const size_)(int64_t);
  const char* phase_ = "";
  int64_t bytes_ = 0, taken_ = 0;
  bool failed_ = false;
  Peak peak_;
  std::unordered_map<const void*, Block> blocks_;
};

}  // namespace lorry::profile
