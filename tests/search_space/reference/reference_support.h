// Programs and inputs for tests of the reference and of samples.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_REFERENCE_REFERENCE_SUPPORT_H_
#define HEDDLE_TESTS_SEARCH_SPACE_REFERENCE_REFERENCE_SUPPORT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "search_space/ir/tensor_values.h"
#include "search_space/notation/notation.h"

namespace heddle::search_space {

inline TensorProgram Builtin(const char* op, const char* shape) {
  return *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32);
}

inline TensorProgram Own(const std::string& text, const char* shape) {
  const auto ops = ParseOperators(text);
  EXPECT_TRUE(ops.ok()) << ops.status();
  const auto program = ops->front().Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// Multiples of 1/4 that repeat late: sums and products of a few are exact.
inline float Pattern(int input, int64_t offset) {
  return static_cast<float>((offset * 37 + input * 11 + offset / 7) % 23 - 11) / 4;
}

inline TensorValues Inputs(const TensorProgram& program) {
  TensorValues values;
  for (size_t t = 0; t < program.inputs.size(); ++t) {
    std::vector<double>& v = values[program.inputs[t]->name];
    for (int64_t i = 0; i < program.inputs[t]->elements; ++i) {
      v.push_back(Pattern(static_cast<int>(t), i));
    }
  }
  return values;
}

}  // namespace heddle::search_space

#endif  // HEDDLE_TESTS_SEARCH_SPACE_REFERENCE_REFERENCE_SUPPORT_H_
