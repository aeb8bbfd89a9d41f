// What a primitive is: a struct of plain fields, its text form, and what it does. The list of all
// of them is in step.h, which includes them.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVE_H_

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

class Schedule;
class ScheduleEditor;
struct ScheduledStage;

// In the struct of a primitive, its row: the type, its name, and its fields in the order of the
// text form; printing, parsing and comparing walk these. What it does stands in its .cc: ApplyTo
// checks everything, then changes the schedule (editor.h).
#define HEDDLE_PRIMITIVE(Type, name, ...) \
  HEDDLE_ROW(Type, name, __VA_ARGS__);    \
  absl::Status ApplyTo(ScheduleEditor& editor) const

// The same of an annotation, which changes nothing but is kept by its stage for the primitives and
// the lowering that ask for it (ScheduledStage::Note): CheckAt says whether it may stand `here`. It
// takes the place of an earlier one of its kind; where a stage may have several, a method says of
// which ones it does:
//   bool Replaces(const Type& earlier) const;
#define HEDDLE_ANNOTATION(Type, name, ...) \
  HEDDLE_ROW(Type, name, __VA_ARGS__);     \
  static constexpr bool kIsNote = true;    \
  absl::Status CheckAt(const Schedule& schedule, const ScheduledStage& here) const

#define HEDDLE_ROW(Type, name, ...)                     \
  static constexpr const char* kName = name;            \
  auto Fields() { return std::tie(__VA_ARGS__); }       \
  auto Fields() const { return std::tie(__VA_ARGS__); } \
  bool operator==(const Type&) const = default

// Words of an enumerated field, in the order of the enumeration; every enumeration has such a
// function beside it.
constexpr auto WordsOf(Scope /*unused*/) { return std::array{"global", "shared", "local"}; }

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVE_H_
