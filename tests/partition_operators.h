// Operators of several kernels that can be divided in more than one way.
#ifndef HEDDLE_TESTS_PARTITION_OPERATORS_H_
#define HEDDLE_TESTS_PARTITION_OPERATORS_H_

namespace heddle::tests {

inline constexpr char kPartitionOperators[] = R"(
op stored_factor(b, n) {
  in X[b, n], Y[b, n]
  out S[q: 1] = sum(z: b, i: n) X[z, i] * Y[z, i]
  E[z: b, i: n] = exp(X[z, i] * 0.01) - S[0]
  out T[i: n] = sum(z: b) E[z, i] * X[z, i]
}
op pairs(b, n) {
  in X[b, n], Y[b, n]
  G[z: b, i: n] = pow(2, X[z, i]) - 1
  W[z: b, i: n, j: n] = abs(G[z, i] - G[z, j])
  out P[z: b, i: n] = sum(j: n) W[z, i, j] * sigmoid(Y[z, i] - Y[z, j])
  out Q[z: b, i: n] = sum(j: n) W[z, i, j] * Y[z, j]
}
op sweeps(n) {
  in X[n, n]
  A[y: n, x: n] = pow(2, exp(X[y, x])) + X[(y + 1) % n, x] + X[(y + n - 1) % n, x] + X[y, (x + 1) % n] + X[y, (x + n - 1) % n]
  out B[y: n, x: n] = A[y, x] + A[(y + 1) % n, x] + A[(y + n - 1) % n, x] + A[y, (x + 1) % n] + A[y, (x + n - 1) % n]
  out E[i: 1] = sum(y: n, x: n) B[y, x] * X[y, x]
}
op linear_ln(m, n, k) {
  in X[m, k], W[k, n], B[n], R[m, n], G[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  H[i: m, j: n] = P[i, j] + B[j] + R[i, j]
  Mu[i: m] = sum(j: n) H[i, j]
  D[i: m, j: n] = H[i, j] - Mu[i] / n
  V[i: m] = sum(j: n) D[i, j] * D[i, j]
  out Y[i: m, j: n] = D[i, j] * rsqrt(V[i] / n + 0.00001) * G[j]
}
op ln_linear(m, n, k) {
  in X[m, k], W[k, n], B[n], R[m, n], G[k]
  Mu[i: m] = sum(r: k) X[i, r]
  D[i: m, j: k] = X[i, j] - Mu[i] / k
  V[i: m] = sum(r: k) D[i, r] * D[i, r]
  N[i: m, j: k] = D[i, j] * rsqrt(V[i] / k + 0.00001) * G[j]
  P[i: m, j: n] = sum(r: k) N[i, r] * W[r, j]
  out Y[i: m, j: n] = P[i, j] + B[j] + R[i, j]
}
op attention_norm(b, h, s, d) {
  let e = h * d
  in Q[b, h, s, d], K[b, h, s, d], V[b, h, s, d], W[h, d, e], R[b, s, e]
  T[z: b, n: h, i: s, j: s] = sum(r: d) Q[z, n, i, r] * K[z, n, j, r]
  M[z: b, n: h, i: s] = max(r: s) T[z, n, i, r]
  E[z: b, n: h, i: s, j: s] = exp((T[z, n, i, j] - M[z, n, i]) * 0.125)
  L[z: b, n: h, i: s] = sum(r: s) E[z, n, i, r]
  O[z: b, n: h, i: s, x: d] = sum(r: s) E[z, n, i, r] * V[z, n, r, x]
  A[z: b, n: h, i: s, x: d] = O[z, n, i, x] / L[z, n, i]
  P[z: b, i: s, o: e] = sum(n: h, x: d) A[z, n, i, x] * W[n, x, o]
  U[z: b, i: s, o: e] = P[z, i, o] + R[z, i, o]
  S[z: b, i: s] = sum(o: e) U[z, i, o] * U[z, i, o]
  out Y[z: b, i: s, o: e] = U[z, i, o] * rsqrt(S[z, i] / e + 0.00001)
}
op rms_qkv(m, n, k) {
  in X[m, k], G[k], WQ[k, n], WK[k, n], WV[k, n]
  S[i: m] = sum(r: k) X[i, r] * X[i, r]
  N[i: m, j: k] = X[i, j] * rsqrt(S[i] / k + 0.00001) * G[j]
  out Q[i: m, j: n] = sum(r: k) N[i, r] * WQ[r, j]
  out K[i: m, j: n] = sum(r: k) N[i, r] * WK[r, j]
  out V[i: m, j: n] = sum(r: k) N[i, r] * WV[r, j]
}
op softmax_product(m, n, k) {
  in X[m, k], V[k, n]
  M[i: m] = max(r: k) X[i, r]
  E[i: m, j: k] = exp(X[i, j] - M[i])
  S[i: m] = sum(r: k) E[i, r]
  P[i: m, j: k] = E[i, j] / S[i]
  out Y[i: m, j: n] = sum(r: k) P[i, r] * V[r, j]
}
op gelu_readers(m, n, k) {
  in X[m, k], B[k], W[k, n]
  G[i: m, j: k] = 0.5 * (X[i, j] + B[j]) * (1 + erf((X[i, j] + B[j]) * 0.7071))
  out C[j: k] = sum(i: m) G[i, j]
  out Y[i: m, j: n] = sum(r: k) G[i, r] * W[r, j]
}
op three_products(m, k, r, s, n) {
  in A[m, k], B[k, r], C[r, s], D[s, n]
  T[i: m, q: r] = sum(p: k) A[i, p] * B[p, q]
  U[i: m, q: s] = sum(p: r) T[i, p] * C[p, q]
  out Y[i: m, j: n] = sum(p: s) max(U[i, p], 0) * D[p, j]
}
op shared_branches(m, n, k, l) {
  in X[m, k], W[k, n], V[n, l], U[n, l]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  A[i: m, j: l] = sum(r: n) sigmoid(T[i, r]) * V[r, j]
  B[i: m, j: l] = sum(r: n) tanh(T[i, r]) * U[r, j]
  out Y[i: m, j: l] = A[i, j] * B[i, j]
}
op logits_softmax(m, n, k) {
  in X[m, k], W[k, n]
  out T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  M[i: m] = max(r: n) T[i, r]
  S[i: m] = sum(r: n) exp(T[i, r] - M[i])
  out Y[i: m, j: n] = exp(T[i, j] - M[i]) / S[i]
}
op adapter_norm(m, d, h) {
  in X[m, d], W[d, h], V[h, d], G[d]
  A[i: m, j: h] = sum(r: d) X[i, r] * W[r, j]
  D[i: m, j: d] = sum(r: h) max(A[i, r], 0) * V[r, j]
  U[i: m, j: d] = X[i, j] + D[i, j]
  S[i: m] = sum(r: d) U[i, r] * U[i, r]
  out Y[i: m, j: d] = U[i, j] * rsqrt(S[i] / d + 0.00001) * G[j]
}
op softmax(m, n) {
  in X[m, n]
  M[i: m] = max(r: n) X[i, r]
  S[i: m] = sum(r: n) exp(X[i, r] - M[i])
  out Y[i: m, j: n] = exp(X[i, j] - M[i]) / S[i]
}
op gelu_product(m, n, k) {
  in X[m, k], W[k, n]
  G[i: m, j: k] = 0.5 * X[i, j] * (1 + erf(X[i, j] * 0.7071))
  out Y[i: m, j: n] = sum(r: k) G[i, r] * W[r, j]
}
)";

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_PARTITION_OPERATORS_H_
