// What every fuzz target has: the function that libFuzzer calls, and properties that must hold.
#ifndef HEDDLE_TESTS_FUZZ_FUZZ_H_
#define HEDDLE_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace heddle::tests {

// A property that does not hold is a crash, which libFuzzer keeps with its input.
inline void Hold(bool property, const std::string& what) {
  if (property) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_FUZZ_FUZZ_H_
