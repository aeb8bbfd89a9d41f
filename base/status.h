// Passing a status on, in one line.
#ifndef HEDDLE_BASE_STATUS_H_
#define HEDDLE_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace heddle {

inline absl::Status ToStatus(absl::Status status) { return status; }
template <typename T>
absl::Status ToStatus(const absl::StatusOr<T>& value) {
  return value.status();
}

}  // namespace heddle

// Returns the expression's status from the function around it unless that is OK. The expression may
// be an absl::Status or an absl::StatusOr whose value nobody wants.
#define HEDDLE_RETURN_IF_ERROR(expression)                                        \
  do {                                                                            \
    if (auto heddle_status = ::heddle::ToStatus(expression); !heddle_status.ok()) \
      return heddle_status;                                                       \
  } while (false)

// Declares `name` with the value of the expression, an absl::StatusOr, or returns its status from
// the function around it:  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
#define HEDDLE_ASSIGN_OR_RETURN(name, expression) \
  auto name##_or = (expression);                  \
  if (!name##_or.ok()) return name##_or.status(); \
  auto name = *std::move(name##_or)

#endif  // HEDDLE_BASE_STATUS_H_
