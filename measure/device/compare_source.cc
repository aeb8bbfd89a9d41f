#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "measure/device/compare.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {

using search_space::DType;

// Few threads find anything but rounding, and none of them the same element: one addition a block
// is what the blocks share.
static_assert(kCompareThreads == 256, "as the source has it");
namespace {

constexpr char kCompareSource[] = R"(
extern "C" __global__ void $entry(const $type* a, const $type* b, long long count, double slack,
                                  unsigned long long* out) {
  __shared__ unsigned long long elements[256];
  __shared__ double distance[256];
  const int thread = threadIdx.x;
  unsigned long long different = 0;
  double largest = 0;
  for (long long i = blockIdx.x * 256LL + thread; i < count; i += gridDim.x * 256LL) {
    const float x = $value(a[i]), y = $value(b[i]);
    if ($bits(a[i]) == $bits(b[i])) continue;
    ++different;
    if (x == y || (x != x && y != y)) continue;
    double d = fabs((double)x - (double)y);
    // Not a number where an operand is none, and then as far as can be.
    if (!(d <= 1e300)) d = __longlong_as_double(0x7ff0000000000000LL);
    else if (slack > 0) d = __ddiv_rn(d, fma(slack, fabs((double)y), 1.0));
    largest = fmax(largest, d);
  }
  elements[thread] = different;
  distance[thread] = largest;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      elements[thread] += elements[thread + half];
      distance[thread] = fmax(distance[thread], distance[thread + half]);
    }
  }
  if (thread == 0 && elements[0] > 0) {
    atomicAdd(out, elements[0]);
    // Doubles that are not negative are ordered like their bits.
    atomicMax(out + 1, (unsigned long long)__double_as_longlong(distance[0]));
  }
}
)";

constexpr char kFloat16[] = R"(
static __device__ float value_of_float16(unsigned short x) {
  const unsigned bits = (x & 0x7fffu) << 13;
  // Exponents are 112 apart; the product is exact, of subnormal numbers too.
  float value = __uint_as_float(bits) * 5.192296858534828e33f;
  if ((x & 0x7c00) == 0x7c00) value = __uint_as_float(bits | 0x7f800000);
  return (x & 0x8000) != 0 ? -value : value;
}
)";
constexpr char kBFloat16[] = R"(
static __device__ float value_of_bfloat16(unsigned short x) {
  return __uint_as_float((unsigned)x << 16);
}
)";

}  // namespace

std::string CompareEntry(DType type) {
  // Of tf32 memory holds float32.
  const DType held = search_space::IsHalf(type) ? type : DType::kFloat32;
  return absl::StrCat("heddle_compare_", search_space::NameOf(held));
}

std::string CompareSource(DType type) {
  const bool half = search_space::IsHalf(type);
  const char* conversion = !half ? "" : type == DType::kFloat16 ? kFloat16 : kBFloat16;
  return conversion +
         absl::StrReplaceAll(
             kCompareSource,
             {{"$entry", CompareEntry(type)},
              {"$type", half ? "unsigned short" : "float"},
              {"$value", half ? absl::StrCat("value_of_", search_space::NameOf(type)) : ""},
              {"$bits", half ? "" : "__float_as_int"}});
}

}  // namespace heddle::measure
