// The operators of the public suite (bench/suites/operators.op), each at a small shape that divides
// nothing.
#ifndef HEDDLE_TESTS_SUITE_CASES_H_
#define HEDDLE_TESTS_SUITE_CASES_H_

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "search_space/notation/notation.h"
#include "tests/support.h"

namespace heddle::tests {

struct SmallCase {
  const char* op;
  const char* shape;
};

// None of them has a rule of its own.
inline constexpr SmallCase kSuiteCases[] = {
    {"geglu", "m=17,n=19,k=21"},
    {"kv_projection", "m=13,n=22,k=9"},
    {"lstm_cell", "m=7,n=6,k=17"},
    {"bilinear_form", "b=5,o=7,m=6,n=9"},
    {"tril_matmul", "m=19,n=13"},
    {"gram", "m=17,n=14"},
    {"tensor_contraction", "a=3,b=5,c=4,d=3,e=2,f=7"},
    {"max_plus", "m=13,n=11,k=18"},
    {"cdist_l1", "m=13,n=10,k=7"},
    {"cdist_l2", "m=11,n=14,k=9"},
    {"chebyshev", "m=13,n=10,k=7"},
    {"conv1d", "n=2,ci=3,l=19,co=5,k=3,pad=1"},
    {"grouped_conv1d", "g=2,ci=3,l=17,co=5,k=5,pad=2"},
    {"dilated_conv2d", "n=1,ci=3,h=9,w=7,co=4,k=3,dilation=2,pad=2"},
    {"conv_transpose1d", "n=2,ci=3,l=7,co=5,k=4,stride=2,pad=1"},
    {"temporal_conv3d", "n=2,ci=3,d=5,h=3,w=4,co=5,k=3,pad=1"},
    {"depthwise_separable", "n=2,c=5,h=5,w=7,co=3,k=3,pad=1"},
    {"avg_pool2d", "n=2,c=3,h=9,w=7,k=3,stride=2,pad=1"},
    {"padded_max_pool2d", "n=2,c=3,h=9,w=7,k=3,stride=2,pad=1"},
    {"moving_average", "n=3,l=37,w=5"},
    {"upsample_nearest", "n=2,c=3,h=5,w=7,s=3"},
    {"upsample_bilinear", "n=2,c=3,h=5,w=7"},
    {"pixel_unshuffle", "n=2,c=3,h=5,w=7,u=2"},
    {"im2col", "n=2,c=3,h=5,w=7,k=3,pad=1"},
    {"outer_product", "b=3,m=11,n=14"},
    {"concat_columns", "m=7,n=11,p=5"},
    {"bias_gelu_dropout", "m=7,n=19"},
    {"sgd_nesterov", "n=137"},
    {"soft_cross_entropy", "m=5,n=37"},
    {"l2_normalize", "m=7,n=44"},
    {"cosine_similarity", "m=5,n=23"},
    {"rms_norm_residual", "m=5,n=36"},
    {"row_argmax", "m=7,n=41"},
    {"causal_softmax", "b=2,s=21"},
    {"log_sum_exp_columns", "m=23,n=12"},
    {"norm_grad_params", "m=19,n=14"},
    {"mse_loss", "m=7,n=19"},
    {"batch_norm_stats", "n=3,c=5,h=3,w=7"},
    {"batch_norm_train", "n=3,c=5,h=4,w=7"},
    {"instance_norm", "n=2,c=3,h=4,w=7"},
    {"causal_attention", "b=2,s=19,d=7"},
    {"gqa_attention", "h=2,g=3,s=17,d=6"},
    {"decode_attention", "b=3,s=21,d=17"},
};

// The operators of a file of bench/suites.
inline std::vector<search_space::Operator> OperatorsOfSuite(const char* suite = "operators.op") {
  std::ifstream file(SourceDir() + "/bench/suites/" + suite);
  std::stringstream text;
  text << file.rdbuf();
  const auto operators = search_space::ParseOperators(text.str());
  EXPECT_TRUE(operators.ok()) << operators.status();
  return operators.ok() ? *operators : std::vector<search_space::Operator>{};
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_SUITE_CASES_H_
