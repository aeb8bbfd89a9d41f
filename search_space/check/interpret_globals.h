// Buffers in global memory, with a record of who wrote which element. Internal to interpret.cc.
#ifndef HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_GLOBALS_H_
#define HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_GLOBALS_H_

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/tensor_values.h"

namespace heddle::search_space {

// Memory that was never written holds this NaN. Arithmetic never makes its payload.
inline constexpr double kUnwritten = std::bit_cast<double>(uint64_t{0x7ff8dead0000beef});
inline bool IsUnwritten(double value) {
  return std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(kUnwritten);
}

enum class Role : uint8_t { kInput, kOutput, kWorkspace };

struct Global {
  const Buffer* buffer;
  Role role;
  std::vector<double> data;  // by physical offset
  // Who wrote an element last: kernel and thread, numbered from 1; 0 = nobody. Empty for inputs.
  struct Writer {
    static constexpr int64_t kSeveral = -1;  // threads, by atomic updates

    int32_t kernel = 0;
    int64_t thread = 0;
  };
  std::vector<Writer> writers;
};

// The inputs, which hold `values` rounded to their types, then outputs and workspaces.
// InvalidArgument where `values` has not exactly the elements of an input.
absl::StatusOr<std::vector<Global>> MakeGlobals(const Program& program, const TensorValues& values);

// The elements, row by row. Internal where one was never written.
absl::StatusOr<std::vector<double>> ValuesOf(const Global& output);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_CHECK_INTERPRET_GLOBALS_H_
