#include "tuner/artefact/launchers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace heddle::tuner {
namespace {

constexpr char kHead[] = R"(
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

struct Buffer {
  const char* name;
  const char* role;
  int64_t elements;
  std::string type;
  int64_t index_extent;  // of an input of int32: indices, less than this
};
// A tensor as bulk copies read it: elements of 2 bytes, or of 4 that are rounded to tf32 on the way.
// Dimensions outermost first.
struct TensorMap {
  const char* buffer;
  int element_bytes;
  std::vector<uint64_t> shape, strides;  // elements; bytes, of all but the innermost
  std::vector<uint32_t> box;             // elements
  int swizzle_bytes;
};
struct Kernel {
  const char* entry;
  const char* file;
  unsigned grid, block, shared_bytes;
  std::vector<const char*> args;  // buffer names, in argument order
  std::vector<TensorMap> maps;    // arguments behind these
};
)";

constexpr char kMain[] = R"(
uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Element `offset` of the input with that number: what samples.txt was computed from.
uint64_t InputBits(int input, int64_t offset) {
  const uint64_t stream = Mix(kInputSeed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(input + 1));
  return Mix(stream + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(offset + 1));
}
float InputValue(int input, int64_t offset) {
  const float unit = static_cast<float>(InputBits(input, offset) >> 40) * 0x1p-24f;
  return kInputScale * unit + kInputLow;
}
std::vector<char> Indices(int input, const Buffer& buffer) {
  std::vector<char> bytes(buffer.elements * sizeof(int32_t));
  for (int64_t i = 0; i < buffer.elements; ++i) {
    const uint64_t below = static_cast<uint64_t>(buffer.index_extent);
    const auto index = static_cast<int32_t>((InputBits(input, i) >> 32) * below >> 32);
    std::memcpy(&bytes[i * sizeof(index)], &index, sizeof(index));
  }
  return bytes;
}

// A 16-bit format: significant bits, and the exponent of the smallest normal number.
struct Half { int digits, least; };
Half HalfOf(const Buffer& buffer) { return buffer.type == "float16" ? Half{11, -14} : Half{8, -126}; }

// The nearest number, ties to even.
uint16_t ToHalf(float x, Half format) {
  if (std::isnan(x)) return 0x7fff;
  const int fraction = format.digits - 1, sign = std::signbit(x) ? 0x8000 : 0;
  const int exponent = x == 0 ? format.least : std::max(std::ilogb(x), format.least);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::abs(x), fraction - exponent)));
  return static_cast<uint16_t>(sign | (((exponent - format.least) << fraction) + units));
}

float FromHalf(uint16_t bits, Half format) {
  const int fraction = format.digits - 1, last = 0x7fff >> fraction;
  const int exponent = (bits & 0x7fff) >> fraction, units = bits & ((1 << fraction) - 1);
  float x = std::ldexp(static_cast<float>(units + (exponent > 0 ? 1 << fraction : 0)),
                       std::max(exponent, 1) - 1 + format.least - fraction);
  if (exponent == last) x = units == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -x : x;
}

size_t SizeOf(const Buffer& buffer) {
  if (buffer.type == "float64") return 8;
  return buffer.type == "float16" || buffer.type == "bfloat16" ? 2 : 4;
}

// The nearest number, ties away from zero.
float ToTF32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = (bits + 0x1000) & 0xffffe000;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}

// As the buffer's type lies in memory.
std::vector<char> Encoded(const Buffer& buffer, const std::vector<float>& values) {
  const size_t size = SizeOf(buffer);
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const double wide = values[i];
    const uint16_t half = size == 2 ? ToHalf(values[i], HalfOf(buffer)) : 0;
    const float single = buffer.type == "tf32" ? ToTF32(values[i]) : values[i];
    const void* from = &single;
    if (size != 4) from = size == 8 ? static_cast<const void*>(&wide) : &half;
    std::memcpy(&bytes[i * size], from, size);
  }
  return bytes;
}
void Decode(const Buffer& buffer, const std::vector<char>& bytes, std::vector<float>& values) {
  const size_t size = SizeOf(buffer);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(size == 2 ? static_cast<void*>(&half) : &values[i], &bytes[i * size], size);
    if (size == 2) values[i] = FromHalf(half, HalfOf(buffer));
  }
}

int main(int argc, char** argv) {
  Gpu gpu(argc > 1 ? std::atoi(argv[1]) : 0);
  std::map<std::string, std::vector<float>> values;
  int input = 0;
  for (const Buffer& buffer : kBuffers) {
    if (buffer.index_extent > 0) {
      gpu.Upload(buffer, Indices(input++, buffer));
      continue;
    }
    // Outputs and workspaces start as NaN: what is not written is seen.
    std::vector<float>& v = values[buffer.name];
    v.assign(buffer.elements, NAN);
    if (buffer.role == std::string("input")) {
      for (int64_t i = 0; i < buffer.elements; ++i) v[i] = InputValue(input, i);
      ++input;
    }
    gpu.Upload(buffer, Encoded(buffer, v));
  }
  gpu.Launch();
  gpu.Wait();
  for (const Buffer& buffer : kBuffers) {
    if (buffer.role != std::string("output")) continue;
    std::vector<char> bytes = Encoded(buffer, values[buffer.name]);
    gpu.Download(buffer, bytes);
    Decode(buffer, bytes, values[buffer.name]);
  }

  std::ifstream samples("samples.txt");
  std::string line;
  int checked = 0, wrong = 0;
  double worst = 0;
  while (std::getline(samples, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    int64_t offset;
    double expected, tolerance;
    fields >> name >> offset >> expected >> tolerance;
    double error = std::abs(values[name][offset] - expected) / tolerance;
    ++checked;
    if (!(error <= 1)) ++wrong;
    worst = std::max(worst, error);
  }

  constexpr int kRuns = 20;
  std::vector<double> us;
  for (int i = 0; i < kRuns; ++i) {
    auto start = std::chrono::steady_clock::now();
    gpu.Launch();
    gpu.Wait();
    us.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%d values checked, %d wrong, largest error %.2g of what is allowed; %.1f us from the "
              "host's side\n",
              checked, wrong, worst, us[us.size() / 2]);
  return checked > 0 && wrong == 0 ? 0 : 1;
}
)";

}  // namespace

std::string CppLauncher(const measure::LauncherText& driver,
                        const std::vector<LauncherBuffer>& buffers,
                        const std::vector<measure::KernelLaunch>& kernels,
                        const std::vector<std::string>& files, uint64_t input_seed,
                        double input_low, double input_scale) {
  std::string text = absl::StrCat(driver.intro, kHead);
  text += "\n// Declaration order; then intermediate tensors, which need no initialisation.\n";
  text += "const std::vector<Buffer> kBuffers = {\n";
  for (const LauncherBuffer& b : buffers) {
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d, \"%s\", %d},\n", b.name, b.role,
                          b.elements, b.type, b.index_extent);
  }
  text += "};\n// Launched in this order.\nconst std::vector<Kernel> kKernels = {\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    const measure::KernelLaunch& k = kernels[i];
    std::string args;
    for (const std::string& a : k.arguments) {
      absl::StrAppend(&args, args.empty() ? "" : ", ", "\"", a, "\"");
    }
    std::string maps;
    for (const measure::TensorMap& map : k.maps) {
      absl::StrAppendFormat(&maps, "%s{\"%s\", %d, {%s}, {%s}, {%s}, %d}", maps.empty() ? "" : ", ",
                            map.buffer, map.element_bytes, absl::StrJoin(map.shape, ", "),
                            absl::StrJoin(map.strides, ", "), absl::StrJoin(map.box, ", "),
                            map.swizzle_bytes);
    }
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d, %d, %d, {%s}, {%s}},\n", k.entry,
                          files[i], k.grid, k.block, k.dynamic_shared_bytes, args, maps);
  }
  absl::StrAppendFormat(&text,
                        "};\nconstexpr uint64_t kInputSeed = %d;\n"
                        "constexpr float kInputLow = %g, kInputScale = %g;\n",
                        input_seed, input_low, input_scale);
  return absl::StrCat(text, driver.driver, kMain);
}

}  // namespace heddle::tuner
