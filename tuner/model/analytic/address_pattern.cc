#include "tuner/model/analytic/address_pattern.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::tuner {
namespace {

// Passes of the shared memory's banks for one instruction of a warp: the most distinct words in one
// bank (CUDA C++ Best Practices Guide). Accesses of 16 bytes a thread go half a warp at a time:
// with that rule the counts agree with Nsight Compute's on an H100 (docs/results/compiler.md).
struct Banks {
  double passes = 0, fewest = 0;
};
Banks CountBanks(const Sampled& bytes, const Sampled& active, size_t warp, double access_bytes) {
  constexpr size_t kMostWords = kLanes * 2;  // in one bank, of one group
  const size_t group = access_bytes > 8 ? kLanes / 2 : kLanes;
  const int words = std::max(1, static_cast<int>(access_bytes / kBankBytes));
  Banks out;
  for (size_t first = 0; first < kLanes; first += group) {
    std::array<std::array<int64_t, kMostWords>, kBanks> distinct;
    std::array<int, kBanks> count{};
    int most = 0, all = 0;
    for (size_t lane = first; lane < first + group; ++lane) {
      if (active.at(warp, lane) == 0) continue;
      const auto word = static_cast<int64_t>(bytes.at(warp, lane) / kBankBytes);
      for (int64_t w = word; w < word + words; ++w) {
        const auto bank = static_cast<size_t>(w % kBanks);
        auto* const end = distinct[bank].begin() + count[bank];
        if (std::find(distinct[bank].begin(), end, w) != end) continue;
        *end = w;
        ++all;
        most = std::max(most, ++count[bank]);
      }
    }
    out.passes += most;
    out.fewest += std::ceil(static_cast<double>(all) / kBanks);
  }
  return out;
}

// Distinct sectors that a warp's instruction touches.
double CountSectors(const Sampled& bytes, const Sampled& active, size_t warp, double access_bytes) {
  const double sectors_each = std::max(1.0, access_bytes / kSectorBytes);
  if (bytes.width != kSamples) return sectors_each;  // all lanes the same
  std::array<int64_t, kLanes> seen;
  size_t count = 0;
  int64_t last = std::numeric_limits<int64_t>::min();  // of `seen`, the largest
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (active.at(warp, lane) == 0) continue;
    // Accesses are aligned to their size, so that none straddles a sector.
    const double place = bytes.v[warp * kLanes + lane] / kSectorBytes;
    auto sector = static_cast<int64_t>(place);
    if (static_cast<double>(sector) > place) --sector;  // rounds down, without a call of floor
    auto* const end = seen.begin() + count;
    // Mostly the last or one beyond all.
    if (count > 0 && sector <= last && std::find(seen.begin(), end, sector) != end) continue;
    seen[count++] = sector;
    last = std::max(last, sector);
  }
  return static_cast<double>(count) * sectors_each;
}

}  // namespace

void MeasureAddresses(SampledVariables& vars, const Sampled& active,
                      const std::array<double, kWarpSamples>& lanes_on,
                      const search_space::ExprList& indices, Access& access) {
  const search_space::Buffer& b = *access.buffer;
  Sampled offset;
  offset.width = 1;
  offset.v[0] = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Sampled& index = vars.Values(indices[i]);
    const auto stride = static_cast<double>(b.strides[i]) * access.element_bytes();
    offset.Widen(index.width);
    if (index.width == 1) {
      for (size_t j = 0; j < offset.width; ++j) offset.v[j] += index.v[0] * stride;
    } else if (index.width == offset.width) {
      for (size_t j = 0; j < offset.width; ++j) offset.v[j] += index.v[j] * stride;
    } else {  // one value a warp
      for (size_t j = 0; j < kSamples; ++j) offset.v[j] += index.v[j / kLanes] * stride;
    }
  }
  if (b.swizzle != 0) {
    offset.Widen(kSamples);
    const double size = access.element_bytes();
    for (double& bytes : offset.v) {
      bytes = static_cast<double>(SwizzledOffset(b, static_cast<int64_t>(bytes / size))) * size;
    }
  }
  const double bytes = access.lanes * access.element_bytes();
  int warps = 0;
  for (size_t w = 0; w < kWarpSamples; ++w) {
    const double on = lanes_on[w];
    if (on == 0) continue;
    ++warps;
    if (b.scope == search_space::Scope::kGlobal) {
      access.sectors += CountSectors(offset, active, w, bytes);
      access.ideal_sectors += std::ceil(on * bytes / kSectorBytes);
    } else {
      const Banks banks = CountBanks(offset, active, w, bytes);
      access.wavefronts += banks.passes;
      access.ideal_wavefronts += banks.fewest;
    }
  }
  if (warps == 0) return;
  for (double* sum :
       {&access.sectors, &access.ideal_sectors, &access.wavefronts, &access.ideal_wavefronts}) {
    *sum /= warps;
  }
}

}  // namespace heddle::tuner
