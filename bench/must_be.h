// What a benchmark cannot go on without.
#ifndef HEDDLE_BENCH_MUST_BE_H_
#define HEDDLE_BENCH_MUST_BE_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"

namespace heddle {

// The value, or the end with the error.
template <typename T>
T MustBe(absl::StatusOr<T> result) {
  if (!result.ok()) {
    fprintf(stderr, "%s\n", result.status().ToString().c_str());
    std::abort();
  }
  return *std::move(result);
}

}  // namespace heddle

#endif  // HEDDLE_BENCH_MUST_BE_H_
