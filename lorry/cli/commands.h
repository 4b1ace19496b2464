#pragma once

// The commands. Each prints its results on standard output and its progress on standard error, and returns the exit
// status. Errors are thrown.

#include "lorry/cli/options.h"

namespace lorry::cli {

int run_info(const InfoOptions& options, const CommonOptions& common);
int run_train(const TrainOptions& options, const CommonOptions& common);
int run_generate(const GenerateOptions& options, const CommonOptions& common);
int run_profile(const ProfileOptions& options, const CommonOptions& common);
/// Runs whichever command the arguments name.
int run_command(const Arguments& arguments);
int run_bench(const BenchOptions& options, const CommonOptions& common);
int run_lessons(const LessonsOptions& options, const CommonOptions& common);

}  // namespace lorry::cli
