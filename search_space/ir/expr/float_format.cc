#include "search_space/ir/expr/float_format.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace heddle::search_space {
namespace {

// Significant bits, the implicit one included, and the exponents of the smallest and of the largest
// normal value.
struct Format {
  int digits, least, most;
};

// Of the types of 16 bits.
constexpr Format HalfFormatOf(DType type) {
  return type == DType::kBFloat16 ? Format{8, -126, 127} : Format{11, -14, 15};
}

constexpr Format FormatOf(DType type) {
  if (type == DType::kFloat16 || type == DType::kBFloat16) return HalfFormatOf(type);
  if (type == DType::kTF32) return {11, -126, 127};
  if (type == DType::kFloat32) return {24, -126, 127};
  return {53, -1022, 1023};
}

constexpr uint16_t kQuietNan = 0x7fff;

// Of a double.
constexpr int kFractionBits = 52, kExponentBias = 1023;

}  // namespace

double RoundToNarrow(DType type, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const Format f = FormatOf(type);
  // In the bits: past each power of two the unit of the fraction doubles, and the carry raises the
  // exponent. Not where it may leave the normal values.
  const auto bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(bits >> kFractionBits & 0x7ff) - kExponentBias;
  if (exponent >= f.least && exponent < f.most) {
    const int dropped = kFractionBits - (f.digits - 1);
    const uint64_t half = uint64_t{1} << (dropped - 1);
    const bool ties_up = type == DType::kTF32 || (bits >> dropped & 1) != 0;
    const uint64_t nearest = (bits + half - (ties_up ? 0 : 1)) >> dropped << dropped;
    return std::bit_cast<double>(nearest);
  }
  const int unit = std::max(std::ilogb(value), f.least) - (f.digits - 1);
  const double units = std::ldexp(value, -unit);
  const double rounded =
      std::ldexp(type == DType::kTF32 ? std::round(units) : std::nearbyint(units), unit);
  return std::abs(rounded) >= std::ldexp(1, f.most + 1) ? std::copysign(INFINITY, value) : rounded;
}

double UnitRoundoff(DType type) {
  return 1 / static_cast<double>(uint64_t{1} << FormatOf(type).digits);
}

uint16_t HalfBits(DType type, double value) {
  if (std::isnan(value)) return kQuietNan;
  const Format f = HalfFormatOf(type);
  const int fraction_bits = f.digits - 1;
  const double rounded = std::abs(RoundToNarrow(type, value));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isinf(rounded)) {
    return static_cast<uint16_t>(sign | (f.most - f.least + 2) << fraction_bits);
  }
  // In units of the smallest subnormal value, bits count on: past each power of two the unit of the
  // fraction doubles, and the carry of the implicit bit raises the exponent.
  const int exponent = rounded == 0 ? f.least : std::max(std::ilogb(rounded), f.least);
  const auto significand = static_cast<int>(std::ldexp(rounded, fraction_bits - exponent));
  return static_cast<uint16_t>(sign | (((exponent - f.least) << fraction_bits) + significand));
}

float HalfValue(DType type, uint16_t bits) {
  if (type == DType::kBFloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const Format f = HalfFormatOf(type);
  const int fraction_bits = f.digits - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const bool normal = exponent > 0;
  float value = std::ldexp(static_cast<float>(fraction + (normal ? 1 << fraction_bits : 0)),
                           std::max(exponent, 1) - 1 + f.least - fraction_bits);
  if (exponent == f.most - f.least + 2) value = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace heddle::search_space
