#include "tuner/records/transfer/trial_set.h"

#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {
namespace {

using measure::Outcome;
using measure::TrialResult;

constexpr char kMagic[] = "heddle-trials 1";

// A point's text in two: "tile i.tile j.tile" and "8 4".
absl::StatusOr<std::pair<std::string, std::string>> NamesAndValues(const std::string& point) {
  const std::vector<std::string> words = absl::StrSplit(point, ' ', absl::SkipEmpty());
  std::vector<std::string> names, values;
  for (const std::string& word : words) {
    const size_t split = word.find_first_of(":=");
    if (split == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("'", point, "' is no point"));
    }
    names.push_back(word.substr(0, split));
    if (word[split] == '=') values.push_back(word.substr(split + 1));
  }
  return std::make_pair(absl::StrJoin(names, " "), absl::StrJoin(values, " "));
}

// "12.34 0.5 ns": microseconds, half the interval's width in percent, flags; or the outcome.
std::string PrintResult(const TrialResult& r) {
  if (r.outcome != Outcome::kOk) return measure::NameOf(r.outcome);
  std::string flags = absl::StrCat(r.noisy ? "n" : "", r.screened_out ? "s" : "");
  return absl::StrFormat("%.5g %.2g %s", r.time_us, 50 * (r.ci_high_us - r.ci_low_us) / r.time_us,
                         flags.empty() ? "-" : flags);
}

// Takes the result's words off the front. False: they are none.
bool ParseResult(std::vector<std::string>& words, TrialResult& r) {
  size_t used = 1;
  if (auto outcome = measure::ParseOutcome(words[0]); outcome && *outcome != Outcome::kOk) {
    r.outcome = *outcome;
  } else {
    double width = 0;
    used = 3;
    if (words.size() < used || !absl::SimpleAtod(words[0], &r.time_us) ||
        !absl::SimpleAtod(words[1], &width) || !(r.time_us > 0) || !(width >= 0)) {
      return false;
    }
    r.outcome = Outcome::kOk;
    r.ci_low_us = r.time_us * (1 - width / 100);
    r.ci_high_us = r.time_us * (1 + width / 100);
    r.noisy = words[2].find('n') != std::string::npos;
    r.screened_out = words[2].find('s') != std::string::npos;
  }
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(used));
  return true;
}

// Newlines of the text as "\n": the notation itself has no backslashes.
std::string OneLine(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, '\n'), "\\n");
}
std::string ManyLines(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, "\\n"), "\n");
}

// "device_name=...|arch=...": the fields of records.
std::string PrintEnvironment(const Environment& environment) {
  std::vector<std::string> fields;
  VisitEnvironment(environment, [&](const char* name, const auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, measure::L2Policy>) {
      fields.push_back(absl::StrCat(name, "=", measure::NameOf(field)));
    } else {
      fields.push_back(absl::StrCat(name, "=", field));
    }
  });
  return absl::StrJoin(fields, "|");
}

bool ParseEnvironment(const std::string& text, Environment& environment) {
  std::map<std::string, std::string> values;
  for (const std::string& field : std::vector<std::string>(absl::StrSplit(text, '|'))) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) return false;
    values[field.substr(0, equals)] = field.substr(equals + 1);
  }
  bool right = true;
  VisitEnvironment(environment, [&](const char* name, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    const std::string& value = values[name];
    if constexpr (std::is_same_v<Field, std::string>) {
      field = value;
    } else if constexpr (std::is_same_v<Field, measure::L2Policy>) {
      auto policy = measure::ParseL2Policy(value);
      right = right && policy;
      if (policy) field = *policy;
    } else {
      right = right && absl::SimpleAtoi(value, &field);
    }
  });
  return right;
}

}  // namespace

absl::StatusOr<int64_t> WriteTrialSets(std::istream& json_lines, std::ostream& out) {
  // By environment and workload, then by the holes' names: lines of values.
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<std::string>>>
      sets;
  std::set<std::string> seen;
  int64_t written = 0, number = 0;
  for (std::string line; std::getline(json_lines, line);) {
    ++number;
    auto stored = ParseLine(line);
    if (!stored.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", std::string(stored.status().message())));
    }
    const TrialRecord& trial = stored->trial;
    if (trial.stage != TrialStage::kScreening || trial.point.empty() ||
        trial.result.outcome == Outcome::kWorkerLost) {
      continue;
    }
    const std::pair<std::string, std::string> set{PrintEnvironment(stored->environment),
                                                  OneLine(stored->workload.text)};
    if (!seen.insert(absl::StrCat(set.first, set.second, trial.point)).second) continue;
    HEDDLE_ASSIGN_OR_RETURN(point, NamesAndValues(trial.point));
    sets[set][point.first].push_back(absl::StrCat(PrintResult(trial.result), " ", point.second));
    ++written;
  }
  out << kMagic << "\n";
  std::string environment;
  for (const auto& [set, trials] : sets) {
    if (set.first != environment) out << "environment " << set.first << "\n";
    environment = set.first;
    out << "workload " << set.second << "\n";
    for (const auto& [holes, lines] : trials) {
      out << "holes " << holes << "\n" << absl::StrJoin(lines, "\n") << "\n";
    }
  }
  return written;
}

absl::StatusOr<std::vector<TrialSet>> ReadTrialSets(std::istream& in) {
  std::vector<TrialSet> sets;
  Environment environment;
  std::vector<std::string> names;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    auto bad = [&](const std::string& expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": expected ", expected, ", found '", line, "'"));
    };
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (number == 1) {
      if (line != kMagic) return bad(absl::StrCat("'", kMagic, "'"));
    } else if (word == "environment") {
      environment = {};
      if (!ParseEnvironment(rest, environment)) return bad("an environment's fields");
    } else if (word == "workload") {
      sets.push_back({environment, ManyLines(rest), {}});
      names.clear();
    } else if (word == "holes") {
      names = absl::StrSplit(rest, ' ', absl::SkipEmpty());
    } else {
      std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      TrialSet::Trial trial;
      if (sets.empty() || names.empty() || words.empty() || !ParseResult(words, trial.result) ||
          words.size() + 1 != names.size()) {
        return bad(absl::StrCat("a result and ", names.empty() ? 0 : names.size() - 1, " values"));
      }
      trial.point = names[0] + ":";
      for (size_t i = 0; i < words.size(); ++i) {
        absl::StrAppend(&trial.point, " ", names[i + 1], "=", words[i]);
      }
      sets.back().trials.push_back(std::move(trial));
    }
  }
  if (number == 0) return absl::InvalidArgumentError("the file of trials is empty");
  return sets;
}

}  // namespace heddle::tuner
