// A hash that is the same in every process and on every machine; not for secrets.
#ifndef HEDDLE_BASE_HASH_H_
#define HEDDLE_BASE_HASH_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace heddle {

// FNV-1a. Each step is a bijection of the state, so that a change of any single byte always changes
// the result.
inline uint64_t HashOf(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// 16 hex digits.
inline std::string HexHashOf(absl::string_view text) {
  return absl::StrFormat("%016x", HashOf(text));
}

}  // namespace heddle

#endif  // HEDDLE_BASE_HASH_H_
