// Prints the trace of the recording that is made by hand, for perfetto_test.py.

#include <fmt/core.h>

#include "lorry/profile/chrome_trace.h"
#include "tests/profile/sample_recording.h"

int main() { fmt::print("{}", lorry::profile::chrome_trace(lorry::profile::sample_recording())); }
