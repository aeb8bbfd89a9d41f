// What the checks of requests (validate.h) share: each adds to `wrong` that the field at the path
// `field` is not as it says.
#ifndef HEDDLE_SERVER_ENGINE_VALIDATE_FIELDS_H_
#define HEDDLE_SERVER_ENGINE_VALIDATE_FIELDS_H_

#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <cstdint>
#include <string>

#include "server/db/errors.h"

namespace heddle::server {

inline constexpr size_t kMaxText = 255;

// 1 to `size` letters, digits and characters of `others`.
bool IsName(const std::string& text, size_t size, const std::string& others);
// As google.protobuf.Timestamp has it.
bool IsTime(const google::protobuf::Timestamp& time);
// "\"cuda\" or \"opencl\""
std::string KnownApis();

void CheckRequestId(const std::string& id, const std::string& field, Violations& wrong);
void CheckText(const std::string& text, const std::string& field, Violations& wrong,
               size_t most = kMaxText);
// 0 to `most`.
void CheckCount(int64_t value, int64_t most, const std::string& field, Violations& wrong);
// Finite and not negative.
void CheckAmount(double value, const std::string& field, Violations& wrong);
// Elements of a list.
void CheckSize(int size, int most, const std::string& field, Violations& wrong);
// Page tokens are those who make them check (server/api/pages.h).
void CheckPageSize(int32_t size, Violations& wrong);
void CheckJobName(const std::string& name, const std::string& field, Violations& wrong);

void CheckEnum(const google::protobuf::EnumDescriptor& type, int value, bool chosen,
               const std::string& field, Violations& wrong);
template <typename Enum>
void CheckEnum(Enum value, const std::string& field, Violations& wrong) {
  CheckEnum(*google::protobuf::GetEnumDescriptor<Enum>(), value, false, field, wrong);
}
// The same of one that must be set.
template <typename Enum>
void CheckChosen(Enum value, const std::string& field, Violations& wrong) {
  CheckEnum(*google::protobuf::GetEnumDescriptor<Enum>(), value, true, field, wrong);
}

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_VALIDATE_FIELDS_H_
