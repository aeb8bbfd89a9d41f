// Chains of two products on matrix units whose statistics are taken along: the programs and inputs
// that tests of them share.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_OPERATORS_H_
#define HEDDLE_TESTS_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_OPERATORS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space::rolling_test {

// Attention in several forms, and programs that lack something of it.
inline constexpr char kOperators[] = R"(
op attention(b, s, t, d, e) {
  in Q[b, s, d], K[b, t, d], V[b, t, e]
  T[z: b, i: s, j: t] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: t) T[z, i, r]
  E[z: b, i: s, j: t]: bfloat16 = exp((T[z, i, j] - M[z, i]) * 0.5)
  L[z: b, i: s] = sum(r: t) E[z, i, r]
  O[z: b, i: s, x: e] = sum(r: t) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: e]: float32 = O[z, i, x] / L[z, i]
}
op causal(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i, exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op window(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i && i - r < w, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i && i - j < w, exp(T[z, i, j] - M[z, i]), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op grouped(h, g, s, d) {
  in Q[h, g, s, d], K[h, s, d], V[h, s, d], B[g, s, s]: float32
  T[z: h, p: g, i: s, j: s] = sum(r: d) Q[z, p, i, r] * K[z, j, r]
  S[z: h, p: g, i: s, j: s] = T[z, p, i, j] * 0.25 + B[p, i, j]
  M[z: h, p: g, i: s] = max(r: s) S[z, p, i, r]
  E[z: h, p: g, i: s, j: s]: bfloat16 = exp(S[z, p, i, j] - M[z, p, i])
  L[z: h, p: g, i: s] = sum(r: s) E[z, p, i, r]
  O[z: h, p: g, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, x]
  out Y[z: h, p: g, i: s, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op heads_last(b, s, h, d) {
  in Q[b, s, h, d], K[b, s, h, d], V[b, s, h, d]
  T[z: b, p: h, i: s, j: s] = sum(r: d) Q[z, i, p, r] * K[z, j, p, r]
  M[z: b, p: h, i: s] = max(r: s) T[z, p, i, r]
  E[z: b, p: h, i: s, j: s]: bfloat16 = exp((T[z, p, i, j] - M[z, p, i]) * 0.5)
  L[z: b, p: h, i: s] = sum(r: s) E[z, p, i, r]
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  out Y[z: b, i: s, p: h, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op without_statistics(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d], G[b]: float32
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i, sigmoid(T[z, i, j]) * exp((j - i) * abs(G[z])), 0)
  out Y[z: b, i: s, x: d]: float32 = sum(r: s) E[z, i, r] * V[z, r, x]
}
op transposed_bias(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s], C[s, s]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + B[i, r] + C[i, r])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + B[j, i] + C[i, j] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op rounded_bias(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s]: float32, C[s, s], G[s, s]
  H[i: s, j: s]: bfloat16 = select(j <= i, G[i, j], 0)
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + bfloat16(B[i, r]) + C[i, r] + H[i, r])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + bfloat16(B[i, j]) + C[i, j] + H[i, j] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op bias_read_elsewhere(s, d) {
  in Q[s, d], K[s, d], V[s, d], B[s, s], C[s, s, 2]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) (T[i, r] + B[i, r] + C[i, r, 0])
  E[i: s, j: s]: bfloat16 = exp(T[i, j] + B[i, j] + C[i, j, 0] + C[i, j, 1] - M[i])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] + B[i, 0]
}
op added_mask(s, t, d) {
  in Q[s, d], K[t, d], V[t, d], A[t]: float32
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) (T[i, r] + A[r])
  E[i: s, j: t]: bfloat16 = exp(T[i, j] + A[j] - M[i])
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i]
}
op window_of_numbers(b, s, d, w) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i && i - r < w, T[z, i, r], -inf)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i && i - j < w, exp(T[z, i, j] - M[z, i]), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op pooled_keys(s, t, d) {
  in Q[s, d], K[4 * t, d], V[t, d]
  A[j: t, x: d] = sum(r: 4) K[4 * j + r, x]
  C[j: t, x: d]: bfloat16 = A[j, x] / 4
  T[i: s, j: t] = sum(r: d) Q[i, r] * C[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp((T[i, j] - M[i]) * 0.25)
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i]
}
op empty_rows(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) select(r < i % 3 * 40, T[i, r], -inf)
  E[i: s, j: t]: bfloat16 = select(j < i % 3 * 40, exp(T[i, j] - M[i]), 0)
  L[i: s] = sum(r: t) E[i, r]
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / max(L[i], 0.000001)
}
op with_maximum(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(T[i, j] - M[i])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] + M[i]
}
op with_statistics(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s]: bfloat16 = select(j <= i, exp(T[z, i, j] / 2 - M[z, i] / 2), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
  out Z[z: b, i: s]: float32 = M[z, i] / 2 + log(L[z, i])
}
op float32_with_statistics(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r] * 0.125
  M[z: b, i: s] = max(r: s) T[z, i, r]
  L[z: b, i: s] = sum(r: s) exp(T[z, i, r] - M[z, i])
  out Z[z: b, i: s]: float32 = M[z, i] + log(L[z, i])
  P[z: b, i: s, j: s] = exp(T[z, i, j] - M[z, i]) / L[z, i]
  out Y[z: b, i: s, x: d]: float32 = sum(r: s) P[z, i, r] * V[z, r, x]
}
op smallest(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = min(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp((M[i] - T[i, j]) * 0.5)
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op float32_weights(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  E[z: b, i: s, j: s] = select(j <= i, exp((T[z, i, j] - M[z, i]) * 0.125), 0)
  L[z: b, i: s] = sum(r: s) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op float32_biased(h, g, s, d) {
  in Q[h, g, s, d], K[h, s, d], V[h, s, d], B[g, s, s]
  T[z: h, p: g, i: s, j: s] = sum(r: d) Q[z, p, i, r] * K[z, j, r]
  S[z: h, p: g, i: s, j: s] = T[z, p, i, j] * 0.25 + B[p, i, j]
  M[z: h, p: g, i: s] = max(r: s) S[z, p, i, r]
  E[z: h, p: g, i: s, j: s] = exp(S[z, p, i, j] - M[z, p, i])
  L[z: h, p: g, i: s] = sum(r: s) E[z, p, i, r]
  O[z: h, p: g, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, x]
  out Y[z: h, p: g, i: s, x: d]: float32 = O[z, p, i, x] / L[z, p, i]
}
op unconverted(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  O[i: s, x: d] = sum(r: t) exp(T[i, r] - M[i]) * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op rectified(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: s) select(r <= i, T[z, i, r], -3.0e38)
  U[z: b, i: s, j: s] = select(j <= i, exp(T[z, i, j] - M[z, i]) - 0.5 * exp(-M[z, i]), 0)
  E[z: b, i: s, j: s]: bfloat16 = max(U[z, i, j], 0)
  L[z: b, i: s] = sum(r: s) abs(U[z, i, r])
  O[z: b, i: s, x: d] = sum(r: s) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d]: float32 = O[z, i, x] / L[z, i]
}
op sum_of_all(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) T[i, r]
  U[i: s, j: s] = exp(T[i, j] - M[i])
  E[i: s, j: s]: bfloat16 = select(j <= i, U[i, j], 0)
  L[i: s] = sum(r: s) U[i, r]
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i]
}
op maximum_of_all(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) T[i, r]
  E[i: s, j: s]: bfloat16 = select(j <= i, exp(T[i, j] - M[i]), 0)
  L[i: s] = sum(r: s) E[i, r]
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x] / L[i] + M[i]
}
op unnormalised(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) T[i, r]
  E[i: s, j: s]: bfloat16 = select(j <= i, exp(T[i, j] - M[i]), 0)
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d]: float32 = O[i, x]
}
op floored(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = max(exp(T[i, j] - M[i]), 0.5)
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op other_dependence(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = max(T[i, j] - M[i] + 1, 0)
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op growing(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(M[i] - T[i, j])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op sum_inside(s, t, d) {
  in Q[s, d], K[t, d], V[t, d]
  T[i: s, j: t] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = sum(r: t) T[i, r]
  E[i: s, j: t]: bfloat16 = exp(T[i, j] - M[i])
  O[i: s, x: d] = sum(r: t) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
op other_row(s, d) {
  in Q[s, d], K[s, d], V[s, d]
  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]
  M[i: s] = max(r: s) T[i, r]
  E[i: s, j: s]: bfloat16 = exp(T[i, j] - M[j])
  O[i: s, x: d] = sum(r: s) E[i, r] * V[r, x]
  out Y[i: s, x: d] = O[i, x]
}
)";

inline std::shared_ptr<const TensorProgram> ProgramOf(const std::string& op,
                                                      const std::string& shape,
                                                      DType type = DType::kBFloat16) {
  const auto found = FindOperator(*ParseOperators(kOperators), op);
  return std::make_shared<const TensorProgram>(*found->Instantiate(*ParseShape(shape), type));
}

// Of sketches whose name begins so.
inline std::vector<Point> PointsOf(const SearchSpace& space, size_t most,
                                   const char* sketch = "rolling:") {
  return DrawnPoints(space, most, BeginsWith(sketch), /*seed=*/3, /*draws=*/600);
}

inline constexpr char kCausal[] =
    "rolling: warps=2 tiles=1 terms=32 held=1 pipeline=2 min_blocks=0 skip_masked=1 last_first=0";

// Scores from some -40 to 40, the largest of a row anywhere in it: weights that are not multiplied
// when the maximum changes are wrong by many orders of magnitude.
inline TensorValues Inputs(const TensorProgram& program) {
  TensorValues values;
  std::mt19937_64 rng(7);
  std::normal_distribution<double> normal;
  for (const BufferRef& input : program.inputs) {
    for (int64_t i = 0; i < input->elements; ++i) {
      values[input->name].push_back(std::round(normal(rng) * 32) / 16);
    }
  }
  return values;
}

// Of values up to 8, averaged with weights that are rounded to 8 bits twice.
inline constexpr double kMostError = 8.0 / 256 * 2;

// Of the result, and of the statistics beside it where a program has these, "Z".
inline double WorstError(const TensorValues& got, const TensorValues& expected) {
  double worst = 0;
  for (const char* output : {"Y", "Z"}) {
    if (!expected.contains(output)) continue;
    for (size_t e = 0; e < expected.at(output).size(); ++e) {
      const double error = std::abs(got.at(output)[e] - expected.at(output)[e]);
      worst = std::max(worst, std::isnan(error) ? HUGE_VAL : error);
    }
  }
  return worst;
}

}  // namespace heddle::search_space::rolling_test

#endif  // HEDDLE_TESTS_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_OPERATORS_H_
