#include "lorry/cli/options_profile.h"

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lorry/cli/checks.h"
#include "lorry/cli/output.h"

namespace lorry::cli {
namespace {

/// Why the cures of a command cannot be tried; empty: its steps can be made again with other options.
std::string why_not_applied(const Arguments& command, std::string name) {
  const auto* const train = std::get_if<TrainOptions>(&command.command);
  if (train != nullptr && !train->forecast) return {};
  if (train != nullptr) name += " --forecast";
  return fmt::format("--apply can make the steps of train again; {} has none", name);
}

/// Replaces a name by the number of its value, as CLI11 reads enumerations.
template <class Enum>
CLI::Validator value_of(const std::map<std::string, Enum>& values) {
  return {[values](std::string& word) {
            std::vector<std::string> names;
            for (const auto& [name, value] : values) names.push_back(name);
            const std::string wrong = check_one_of(word, names);
            if (wrong.empty()) word = std::to_string(static_cast<int>(values.at(word)));
            return wrong;
          },
          ""};
}

}  // namespace

void add_profile(CLI::App& app, ProfileOptions& o) {
  app.add_option("--trace", o.trace, "File for a trace that opens in Perfetto or chrome://tracing")->type_name("FILE");
  app.add_option("--report", o.report, "File for a page of HTML with all of it")->type_name("FILE");
  app.add_option("--memory-plot", o.memory_plot, "File for a plot of memory over time, SVG")->type_name("FILE");
  const std::map<std::string, profile::GroupBy> groups{{"operator", profile::GroupBy::op},
                                                       {"module", profile::GroupBy::module},
                                                       {"line", profile::GroupBy::line},
                                                       {"shape", profile::GroupBy::shape}};
  app.add_option("--by", o.by, "Tables: operator (default), module, line, shape; several are separated by commas")
      ->delimiter(',')
      ->transform(value_of(groups))
      ->type_name("WHAT");
  const std::map<std::string, profile::SortBy> orders{
      {"time", profile::SortBy::time},     {"self_cpu", profile::SortBy::self_cpu}, {"cpu", profile::SortBy::cpu},
      {"device", profile::SortBy::device}, {"calls", profile::SortBy::calls},       {"bytes", profile::SortBy::bytes},
      {"flops", profile::SortBy::flops},   {"name", profile::SortBy::name}};
  app.add_option("--sort-by", o.sort_by,
                 "Order of rows: time (default), self_cpu, cpu, device, calls, bytes, flops, name")
      ->transform(value_of(orders))
      ->type_name("KEY");
  app.add_flag(
      "--apply", o.apply,
      "Of train: then make its steps again with each cure that the diagnosis proposes and that Lorry can apply, "
      "and print the gain that was predicted beside that achieved");
  app.add_flag("--apply-all", o.apply_all, "The same with each cure that Lorry can apply, proposed or not");
  app.add_option("--rows", o.rows, "Rows of each table; default 20")->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--max-spans", o.max_spans,
                 "Calls that are recorded at most; later ones make the diagnosis incomplete")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 28));
  app.callback([&app] {
    for (const char* file : {"--trace", "--report", "--memory-plot", "--json"})
      if (app.count(file) && is_standard_output(app.get_option(file)->as<std::string>()))
        throw CLI::ValidationError(file, "cannot be standard output, where the command that is profiled prints");
  });
}

int words_before_command(int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "profile") return argc;
  int count = 2;
  while (count < argc && std::string_view(argv[count]) != "--") ++count;
  return count;
}

std::variant<Arguments, int> parse_profile(Arguments arguments, ProfileOptions profile, int own, int argc,
                                           const char* const* argv) {
  const auto refuse = [](const std::string& why) {
    fmt::print(stderr, "lorry profile: {}; expected, for example: lorry profile -- train --text FILE\n", why);
    return kWrongUsage;
  };
  if (own + 1 >= argc) return refuse("a command is missing");
  std::vector<const char*> words{argv[0]};
  words.insert(words.end(), argv + own + 1, argv + argc);
  if (std::string_view(words[1]) == "profile") return refuse("a profile cannot be profiled");
  CommonOptions common = arguments.common;
  common.json.clear();  // the figures of the profile
  std::variant<Arguments, int> inner = parse(static_cast<int>(words.size()), words.data(), common);
  if (const int* status = std::get_if<int>(&inner)) return *status;
  if (profile.apply || profile.apply_all)
    if (const std::string why = why_not_applied(std::get<Arguments>(inner), words[1]); !why.empty()) return refuse(why);
  profile.command = std::make_shared<const Arguments>(std::get<Arguments>(std::move(inner)));
  arguments.command = std::move(profile);
  return arguments;
}

}  // namespace lorry::cli
