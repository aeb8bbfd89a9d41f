#include "tuner/records/records_fields.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace heddle::tuner {
namespace {

using nlohmann::json;
using search_space::DType;

constexpr int kLineFormat = 1;
constexpr size_t kMaxText = 64 << 10;             // bytes of any string of an imported line
constexpr int64_t kMaxWhen = 253402300799999999;  // the end of the year 9999

// ------------------------------------------------------------------------------------ checksums

class Hash {
 public:
  void Add(uint64_t value, int bytes = 8) {
    for (int i = 0; i < bytes; ++i) {
      state_ = (state_ ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
    }
  }
  void Add(const std::string& text) {
    for (unsigned char c : text) Add(c, 1);
    Add(text.size());
  }
  uint64_t state() const { return state_; }

  // The fields of a trial, as they come back from the database.
  void operator()(const char*, const std::string& value) { Add(value); }
  void operator()(const char*, int64_t value) { Add(static_cast<uint64_t>(value)); }
  void operator()(const char*, int value) { Add(static_cast<uint64_t>(int64_t{value})); }
  void operator()(const char*, bool value) { Add(uint64_t{value}); }
  // SQLite keeps -0.0 as 0.
  void operator()(const char*, double value) { Add(std::bit_cast<uint64_t>(value + 0.0)); }
  void operator()(const char*, absl::Time value) {
    Add(static_cast<uint64_t>(absl::ToUnixMicros(value)));
  }
  void operator()(const char*, TrialStage value) { Add(static_cast<uint64_t>(value)); }
  void operator()(const char*, Origin value) { Add(static_cast<uint64_t>(value)); }
  void operator()(const char*, measure::Outcome value) { Add(std::string(NameOf(value))); }
  void operator()(const char*, measure::L2Policy value) { Add(std::string(NameOf(value))); }

  // Fields that older rows do not have count where they are given, with their names.
  struct Given {
    Hash& to;
    template <typename T>
    void operator()(const std::string& name, const T& value) const {
      if (value == T{}) return;
      to.Add(name);
      to(name.c_str(), value);
    }
  };
  Given later() { return {*this}; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

// ------------------------------------------------------------------------------------- printing

struct JsonWriter {
  json& to;

  template <typename T>
  void operator()(const char* name, const T& value) {
    to[name] = value;
  }
  void operator()(const char* name, double value) {
    to[name] = std::isfinite(value) ? json(value) : json();  // an error without bound is null
  }
  void operator()(const char* name, absl::Time value) { to[name] = absl::ToUnixMicros(value); }
  void operator()(const char* name, TrialStage value) { to[name] = value == TrialStage::kFinal; }
  void operator()(const char* name, Origin value) { to[name] = value == Origin::kImported; }
  void operator()(const char* name, measure::Outcome value) { to[name] = NameOf(value); }
  void operator()(const char* name, measure::L2Policy value) { to[name] = NameOf(value); }
};

// -------------------------------------------------------------------------------------- parsing

bool HasControl(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
  });
}

// Reads the fields of one object; the first thing that is wrong stays in `status`.
struct JsonReader {
  const json& from;
  std::string where;     // "trial."
  bool required = true;  // else what is missing stays as it is
  absl::Status status = absl::OkStatus();

  // Fields that lines of older versions lack.
  struct Optional {
    JsonReader& reader;
    void operator()(const std::string& name, auto& value) const {
      reader.required = false;
      reader(name, value);
      reader.required = true;
    }
  };
  Optional later() { return {*this}; }

  void Refuse(const std::string& name, const std::string& expected) {
    status = absl::InvalidArgumentError(absl::StrCat("\"", where, name, "\" must be ", expected));
  }
  // The value of a key; null once something is wrong.
  const json* Find(const std::string& name) {
    if (!status.ok()) return nullptr;
    auto it = from.find(name);
    if (it != from.end()) return &*it;
    if (!required) return nullptr;
    status = absl::InvalidArgumentError(absl::StrCat("\"", where, name, "\" is missing"));
    return nullptr;
  }

  void operator()(const std::string& name, std::string& value) {
    const json* j = Find(name);
    if (j == nullptr) return;
    if (!j->is_string()) return Refuse(name, "text");
    value = j->get<std::string>();
    if (value.size() > kMaxText) return Refuse(name, absl::StrCat("at most ", kMaxText, " bytes"));
    if (!HasControl(value)) return;
    if (name != "detail") return Refuse(name, "text without control characters");
    std::replace_if(
        value.begin(), value.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  }
  void ReadInt(const std::string& name, int64_t max, auto& value) {
    const json* j = Find(name);
    if (j == nullptr) return;
    const bool whole = j->is_number_integer() && (!j->is_number_unsigned() ||
                                                  j->get<uint64_t>() <= static_cast<uint64_t>(max));
    if (!whole || j->get<int64_t>() < 0) {
      return Refuse(name, absl::StrCat("a whole number from 0 to ", max));
    }
    value = static_cast<std::remove_reference_t<decltype(value)>>(j->get<int64_t>());
  }
  void operator()(const std::string& name, int64_t& value) {
    ReadInt(name, std::numeric_limits<int64_t>::max(), value);
  }
  void operator()(const std::string& name, int& value) {
    ReadInt(name, std::numeric_limits<int>::max(), value);
  }
  void operator()(const std::string& name, absl::Time& value) {
    int64_t micros = 0;
    ReadInt(name, kMaxWhen, micros);
    value = absl::FromUnixMicros(micros);
  }
  void operator()(const std::string& name, double& value) {
    const json* j = Find(name);
    if (j == nullptr) return;
    if (j->is_null() && name == "max_error") {
      value = std::numeric_limits<double>::infinity();
      return;
    }
    if (!j->is_number() || !std::isfinite(j->get<double>()) || j->get<double>() < 0) {
      return Refuse(name, "a finite number that is not negative");
    }
    value = j->get<double>();
  }
  void operator()(const std::string& name, bool& value) {
    const json* j = Find(name);
    if (j == nullptr) return;
    if (!j->is_boolean()) return Refuse(name, "true or false");
    value = j->get<bool>();
  }
  void operator()(const std::string& name, TrialStage& value) {
    bool final = false;
    (*this)(name, final);
    value = final ? TrialStage::kFinal : TrialStage::kScreening;
  }
  void operator()(const std::string& name, Origin& value) {
    bool imported = false;
    (*this)(name, imported);
    value = Origin::kImported;  // whatever it was where it comes from
  }
  void operator()(const std::string& name, measure::Outcome& value) {
    std::string text;
    (*this)(name, text);
    if (!status.ok()) return;
    std::optional<measure::Outcome> outcome = measure::ParseOutcome(text);
    if (!outcome) return Refuse(name, "an outcome such as \"OK\" or \"BUILD_ERROR\"");
    value = *outcome;
  }
  void operator()(const std::string& name, measure::L2Policy& value) {
    std::string text;
    (*this)(name, text);
    if (!status.ok()) return;
    std::optional<measure::L2Policy> policy = measure::ParseL2Policy(text);
    if (!policy) return Refuse(name, "\"cold\" or \"warm\"");
    value = *policy;
  }
};

bool IsDType(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    if (name == NameOf(static_cast<DType>(i))) return true;
  }
  return false;
}

// The workload's fields, of which `shape` is an object.
absl::Status ReadWorkload(const json& from, WorkloadRow& w) {
  json flat = from;
  auto shape = flat.find("shape");
  if (shape != flat.end()) {
    if (!shape->is_object()) {
      return absl::InvalidArgumentError("\"workload.shape\" must be an object of whole numbers");
    }
    JsonReader extents{*shape, "workload.shape."};
    for (const auto& item : shape->items()) {
      int64_t extent = 0;
      extents(item.key(), extent);
    }
    if (!extents.status.ok()) return extents.status;
    *shape = shape->dump();
  }
  JsonReader reader{flat, "workload."};
  VisitWorkload(w, reader);
  if (!reader.status.ok()) return reader.status;
  if (w.hash != absl::StrFormat("%016x", HashOf(w.text))) {
    reader.Refuse("hash", "the hash of \"workload.text\"");
  } else if (w.op.empty() || w.text.empty()) {
    reader.Refuse(w.op.empty() ? "op" : "text", "given");
  } else if (!IsDType(w.dtype)) {
    reader.Refuse("dtype", "a data type such as \"float32\"");
  }
  return reader.status;
}

absl::StatusOr<json> ParseObject(const std::string& line) {
  constexpr size_t kExcerpt = 20;  // characters that show where
  std::string wrong;
  try {
    json parsed = json::parse(line);
    if (parsed.is_object()) return parsed;
    wrong = "this is JSON, but no object";
  } catch (const json::parse_error& e) {
    wrong = e.byte > line.size()
                ? "the line ends within its JSON, was the file cut short?"
                : absl::StrCat("not JSON at column ", e.byte, ", '",
                               absl::CHexEscape(line.substr(e.byte - 1, kExcerpt)), "'");
  } catch (const json::exception&) {  // the only other one that parsing throws
    wrong = "a number in it is too large";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(wrong, "; a line is one object, as `heddle records export` writes it"));
}

}  // namespace

int64_t ChecksumOf(const StoredTrial& stored) {
  Hash hash;
  VisitWorkload(stored.workload, hash);
  VisitEnvironment(stored.environment, hash);
  VisitTrial(stored.trial, hash);
  hash.Add(stored.trial.steps);
  VisitLaterEnvironment(stored.environment, hash);
  VisitProvenance(stored.trial.from, hash);
  return static_cast<int64_t>(hash.state());
}

bool ReadLine(std::istream& in, std::string& line, bool& too_long, bool& whole) {
  line.clear();
  too_long = false;
  std::streambuf* from = in.rdbuf();
  constexpr int kEof = std::char_traits<char>::eof();
  int c = from->sbumpc();
  if (c == kEof) return false;
  for (; c != '\n' && c != kEof; c = from->sbumpc()) {
    too_long |= line.size() >= kMaxLine;
    if (!too_long) line.push_back(static_cast<char>(c));
  }
  whole = c == '\n';
  return true;
}

std::string PrintLine(const StoredTrial& stored) {
  json line = {{"format", kLineFormat}};
  VisitWorkload(stored.workload, JsonWriter{line["workload"]});
  line["workload"]["shape"] = json::parse(stored.workload.shape, nullptr, false);
  VisitEnvironment(stored.environment, JsonWriter{line["environment"]});
  VisitLaterEnvironment(stored.environment, JsonWriter{line["environment"]});
  VisitTrial(stored.trial, JsonWriter{line["trial"]});
  VisitPlace(stored.trial.from, JsonWriter{line["trial"]});
  line["trial"]["steps"] = stored.trial.steps;
  // Evidence may hold bytes that are not UTF-8.
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<StoredTrial> ParseLine(const std::string& text) {
  HEDDLE_ASSIGN_OR_RETURN(line, ParseObject(text));
  auto format = line.find("format");
  if (format == line.end() || *format != kLineFormat) {
    return absl::InvalidArgumentError(absl::StrCat("\"format\" must be ", kLineFormat,
                                                   ": other versions of heddle write other lines"));
  }
  for (const char* part : {"workload", "environment", "trial"}) {
    auto it = line.find(part);
    if (it == line.end() || !it->is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", part, "\" must be an object"));
    }
  }
  StoredTrial stored;
  HEDDLE_RETURN_IF_ERROR(ReadWorkload(line["workload"], stored.workload));
  JsonReader environment{line["environment"], "environment."};
  VisitEnvironment(stored.environment, environment);
  VisitLaterEnvironment(stored.environment, environment);
  if (!environment.status.ok()) return environment.status;
  JsonReader trial{line["trial"], "trial."};
  VisitTrial(stored.trial, trial);
  trial("steps", stored.trial.steps);
  VisitPlace(stored.trial.from, trial);
  if (!trial.status.ok()) return trial.status;
  HEDDLE_RETURN_IF_ERROR(CheckTrial(stored.trial));
  stored.trial.workload_hash = stored.workload.hash;
  return stored;
}

absl::Status CheckTrial(const TrialRecord& trial) {
  const measure::TrialResult& r = trial.result;
  if (trial.point.empty() && trial.steps.empty()) {
    return absl::InvalidArgumentError("a trial needs a point or steps");
  }
  for (double value :
       {r.time_us, r.ci_low_us, r.ci_high_us, r.compile_s, r.load_s, r.validate_s, r.time_s}) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a trial's times must be finite and not negative, not ", value));
    }
  }
  if (r.outcome == measure::Outcome::kOk && r.time_us <= 0) {
    return absl::InvalidArgumentError("a trial that is OK needs a time above zero");
  }
  return absl::OkStatus();
}

}  // namespace heddle::tuner
