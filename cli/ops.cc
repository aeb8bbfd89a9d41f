// heddle ops: the operators and their parameters.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/command.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/notation_limits.h"

namespace heddle::cli {
namespace {

struct OpsFlags {
  std::string name, op_file;
  bool json = false;
};

std::string Signature(const search_space::Operator& op) {
  std::string parameters;
  for (const auto& p : op.parameters()) {
    absl::StrAppend(&parameters, parameters.empty() ? "" : ", ", p.name);
    if (p.default_value) absl::StrAppend(&parameters, "=", *p.default_value);
  }
  return absl::StrCat(op.name(), "(", parameters, ")");
}

Json ToJson(const search_space::Operator& op) {
  Json parameters = Json::array();
  for (const auto& p : op.parameters()) {
    Json entry{{"name", p.name}};
    if (p.default_value) entry["default"] = *p.default_value;
    parameters.push_back(entry);
  }
  return Json{{"name", op.name()}, {"parameters", parameters}, {"text", op.text()}};
}

Result RunOps(const OpsFlags& flags) {
  std::vector<search_space::Operator> operators = search_space::BuiltinOperators();
  if (!flags.op_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(flags.op_file, search_space::kMaxNotationBytes));
    auto parsed = search_space::ParseOperators(text);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(flags.op_file, ":", parsed.status().message()));
    }
    operators = *std::move(parsed);
  }
  if (!flags.name.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(found, search_space::FindOperator(operators, flags.name));
    operators = {std::move(found)};
  }
  if (flags.json) {
    Json all = Json::array();
    for (const auto& op : operators) all.push_back(ToJson(op));
    PrintJson(all);
  } else {
    for (const auto& op : operators) {
      std::cout << (flags.name.empty() ? Signature(op) + "\n" : op.text());
    }
  }
  return kDone;
}

}  // namespace

void AddOps(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<OpsFlags>();
  CLI::App* sub = app.add_subcommand("ops", "list the operators, or show one's definition");
  sub->add_option("op", flags->name, "show this one's tensor notation")->type_name("OP");
  sub->add_option("--op-file", flags->op_file, "those of a file instead of the built-in ones")
      ->type_name("FILE");
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->callback([=] { *selected = [=] { return RunOps(*flags); }; });
}

}  // namespace heddle::cli
