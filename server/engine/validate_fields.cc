#include "server/engine/validate_fields.h"

#include <google/protobuf/descriptor.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/codegen/dialects.h"
#include "server/db/convert.h"

namespace heddle::server {

bool IsName(const std::string& text, size_t size, const std::string& others) {
  if (text.empty() || text.size() > size) return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(c) && others.find(c) == std::string::npos) return false;
  }
  return true;
}

void CheckRequestId(const std::string& id, const std::string& field, Violations& wrong) {
  if (!IsName(id, 128, "-_.")) {
    wrong.Add(field, "1 to 128 letters, digits, '-', '_' or '.', new for each new request");
  }
}

void CheckText(const std::string& text, const std::string& field, Violations& wrong, size_t most) {
  if (text.size() > most) wrong.Add(field, absl::StrCat("at most ", most, " bytes"));
}

void CheckCount(int64_t value, int64_t most, const std::string& field, Violations& wrong) {
  if (value < 0 || value > most) {
    wrong.Add(field, absl::StrCat(value, " is not in 0 .. ", most));
  }
}

void CheckAmount(double value, const std::string& field, Violations& wrong) {
  if (!(value >= 0) || std::isinf(value)) wrong.Add(field, "must be finite and not negative");
}

void CheckPageSize(int32_t size, Violations& wrong) {
  if (size < 0) wrong.Add("page_size", "must not be negative");
}

void CheckJobName(const std::string& name, const std::string& field, Violations& wrong) {
  if (JobId(name) == 0) {
    wrong.Add(field, "must be the name of a job, as CreateJob and ListJobs give it");
  }
}

bool IsTime(const google::protobuf::Timestamp& time) {
  constexpr int64_t kBeginOfYear1 = -62135596800, kEndOfYear9999 = 253402300799;
  return time.nanos() >= 0 && time.nanos() <= 999999999 && time.seconds() >= kBeginOfYear1 &&
         time.seconds() <= kEndOfYear9999;
}

std::string KnownApis() {
  return absl::StrCat("\"", absl::StrJoin(measure::ApiNames(), "\" or \""), "\"");
}

void CheckSize(int size, int most, const std::string& field, Violations& wrong) {
  if (size > most) wrong.Add(field, absl::StrCat("at most ", most));
}

void CheckEnum(const google::protobuf::EnumDescriptor& type, int value, bool chosen,
               const std::string& field, Violations& wrong) {
  if (type.FindValueByNumber(value) != nullptr && !(chosen && value == 0)) return;
  wrong.Add(field, absl::StrCat(value, " is no value of it"));
}

}  // namespace heddle::server
