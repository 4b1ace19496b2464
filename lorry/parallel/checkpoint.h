#pragma once

// A checkpoint of several processes: one logical checkpoint, the same bytes whatever their number. Every rank writes
// its share, and rank 0 commits it when all shares are on the disk.

#include <filesystem>

#include "lorry/io/checkpoint.h"
#include "lorry/parallel/data_parallel.h"

namespace lorry::parallel {

/// Saves to `directory`, as io::save_checkpoint does; all ranks call it. checkpoint: what this rank has, with the
/// states of its optimizer over own_parts(); `state` is that of rank 0. Every rank writes the parameters and states
/// that it owns; what no rank owns, and without `shard` everything, is written by rank 0. All ranks must see the same
/// file system. Throws as io::save_checkpoint does, on all ranks if one cannot write its share, and ParallelError if
/// another rank has failed: the previous checkpoint stays.
///
/// It is loaded by io::load_checkpoint, and DataParallel::own_state() takes of it what belongs to a rank.
void save_checkpoint(const std::filesystem::path& directory, const io::Checkpoint& checkpoint, DataParallel& ranks);

}  // namespace lorry::parallel
