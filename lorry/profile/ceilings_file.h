#pragma once

// Ceilings as the text of a cached file.

#include <optional>
#include <string>
#include <string_view>

#include "lorry/profile/ceilings.h"

namespace lorry::profile::detail {

/// Everything that a measurement depends on: the device's name, driver and clocks, or the processor with its threads
/// and instruction set, and the version of the file's format.
std::string ceilings_key(Device device);

std::string ceilings_text(const Ceilings& ceilings, const std::string& key);
/// The ceilings of a text with this key, `cached` set. None for any other text: damaged, of another key, or with
/// figures that no measurement gives (negative, infinite, missing). Never throws; texts may be hostile.
std::optional<Ceilings> read_ceilings(std::string_view text, const std::string& key, Device device);

/// The files in the folder of cached files. Reading and writing never throw: without the folder nothing is found, and
/// a warning event says why nothing was written.
std::optional<Ceilings> load_ceilings(const std::string& key, Device device);
void save_ceilings(const Ceilings& ceilings, const std::string& key);

}  // namespace lorry::profile::detail
