// Operators as tests of the notation write them.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_NOTATION_NOTATION_SUPPORT_H_
#define HEDDLE_TESTS_SEARCH_SPACE_NOTATION_NOTATION_SUPPORT_H_

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"

namespace heddle::search_space {

using Shape = std::map<std::string, int64_t>;

inline Operator ParseOne(const std::string& text) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->size(), 1u);
  return parsed->front();
}

inline TensorProgram Instantiate(const std::string& text, const Shape& shape = {},
                                 DType dtype = DType::kFloat32) {
  auto program = ParseOne(text).Instantiate(shape, dtype);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

inline std::string ParseError(const std::string& text) {
  const auto parsed = ParseOperators(text);
  if (parsed.ok()) return "(accepted)";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

inline std::string ShapeError(const std::string& text, const Shape& shape = {}) {
  const auto program = ParseOne(text).Instantiate(shape, DType::kFloat32);
  if (program.ok()) return "(accepted)";
  EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(program.status().message());
}

// An operator whose output is the value `e` over A[n], B[n] and axis i: n.
inline std::string WithValue(const std::string& e) {
  return absl::StrCat("op f(n = 8) { in A[n], B[n] out Y[i: n] = ", e, " + 0*A[i] + 0*B[i] }");
}

inline std::string Body(const std::string& e) {
  return ToString(
      Instantiate(absl::StrCat("op f(n = 8) { in A[n] out Y[i: n] = ", e, " }")).stages[0].body);
}

}  // namespace heddle::search_space

#endif  // HEDDLE_TESTS_SEARCH_SPACE_NOTATION_NOTATION_SUPPORT_H_
