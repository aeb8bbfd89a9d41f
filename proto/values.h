// Values of the API's messages as the program has them, and limits that both sides keep.
#ifndef HEDDLE_PROTO_VALUES_H_
#define HEDDLE_PROTO_VALUES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/generated_enum_reflection.h>
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/time/time.h"

namespace heddle {

// Of an Acquire, a Report or a Release.
inline constexpr int kMaxCandidates = 32;
// Of a detail, such as a compiler's log: so many are sent and recorded.
inline constexpr size_t kDetailBytes = 4096;

// Rounded to nanoseconds; 0 where `seconds` is no number, and at most the 10,000 years of a
// Duration.
inline google::protobuf::Duration DurationOf(double seconds) {
  constexpr double kMost = 315576000000, kNanos = 1e9;
  google::protobuf::Duration duration;
  if (std::isnan(seconds)) return duration;
  seconds = std::clamp(seconds, -kMost, kMost);
  double whole = std::trunc(seconds);
  double nanos = std::round((seconds - whole) * kNanos);
  if (std::abs(nanos) >= kNanos) {
    whole += std::copysign(1, nanos);
    nanos = 0;
  }
  duration.set_seconds(static_cast<int64_t>(whole));
  duration.set_nanos(static_cast<int32_t>(nanos));
  return duration;
}

// Not a number where the message is no Duration: one of its parts is out of range or their signs
// differ.
inline double SecondsOf(const google::protobuf::Duration& duration) {
  constexpr int64_t kMost = 315576000000;
  constexpr int32_t kNanos = 1000000000;
  const int64_t seconds = duration.seconds();
  const int32_t nanos = duration.nanos();
  if (std::abs(seconds) > kMost || std::abs(nanos) >= kNanos || (seconds > 0 && nanos < 0) ||
      (seconds < 0 && nanos > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return static_cast<double>(seconds) + nanos / 1e9;
}

inline absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// The prefix of an enumeration's values, which that of value 0 shows: "STATE_" of
// "STATE_UNSPECIFIED".
template <typename Enum>
std::string PrefixOf() {
  const std::string& zero =
      google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(0)->name();
  return zero.substr(0, zero.size() - std::string("UNSPECIFIED").size());
}

// A value for people and logs, without the prefix: "RUNNING"; its number where it is of a newer
// version.
template <typename Enum>
std::string WordOf(Enum value) {
  const auto* known = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  if (known == nullptr) return std::to_string(static_cast<int>(value));
  return known->name().substr(PrefixOf<Enum>().size());
}

}  // namespace heddle

#endif  // HEDDLE_PROTO_VALUES_H_
