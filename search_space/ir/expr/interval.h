// What can be known of an integer expression without its variables' values.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_INTERVAL_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_INTERVAL_H_

#include <cstdint>

namespace heddle::search_space {

// All integers from min to max.
struct Interval {
  int64_t min;
  int64_t max;
  bool operator==(const Interval&) const = default;
};

// Integers == remainder (mod modulus); modulus 0 = `remainder` alone, modulus 1 = all of them.
struct ModRem {
  int64_t modulus;
  int64_t remainder;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_INTERVAL_H_
