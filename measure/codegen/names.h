// Identifiers of a kernel, by scope.
#ifndef HEDDLE_MEASURE_CODEGEN_NAMES_H_
#define HEDDLE_MEASURE_CODEGEN_NAMES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "measure/codegen/dialects.h"

namespace heddle::measure {

// A kernel's names are chosen in two ways.
enum class Naming : uint8_t {
  kReadable,  // for whoever reads the kernel
  // For the hash of a source, which is to stay when readable names change: a prefix for what the
  // name is of, then the name in the loops. As generator 12 wrote them, so that what was measured
  // by it is known again.
  kNormal,
};

// What a name is of.
enum class NameKind : uint8_t {
  kArgument,   // a tensor in global memory
  kShared,     // a buffer in shared memory
  kRegisters,  // a thread's own array
  kIndex,      // a loop, the block or the thread
  kMap,        // what bulk copies know of a tensor
  kValue,      // an element of a buffer, loaded
  kVector,     // several
  kOffset,     // into a buffer
  kPointer,    // into a buffer
  kCondition,  // of a load
  kOther,
};

// Every name is an identifier of the dialect that means nothing else there, and unlike those of all
// scopes around it. They depend on nothing but the order and the arguments of the calls.
//
// A kernel is printed once: what stands in the text is a sign for the name, a few bytes that occur
// nowhere else, which Spell replaces in either way. Signs of one scope are equal where names are.
class Names {
 public:
  explicit Names(const Dialect& dialect);

  // The sign of a name in the innermost scope. `wanted` is what the loops and buffers of the kernel
  // call it, such as "i.2@j.2" or "A.shared". `word`, if any, is what it is for a reader.
  std::string Declare(NameKind kind, absl::string_view wanted, absl::string_view word = "");
  // A sign for what is said to readers alone.
  std::string Aside(std::string text);
  size_t Mark() const { return active_.size(); }
  void Release(size_t mark) { active_.resize(mark); }  // ends the scopes entered since Mark()

  // The text with names in the place of signs.
  std::string Spell(absl::string_view text, Naming naming) const;

 private:
  struct Spelled {
    std::string readable, normal;
  };
  std::string NormalName(NameKind kind, absl::string_view wanted) const;
  std::string ReadableName(NameKind kind, absl::string_view wanted) const;
  bool IsFree(const std::string& name, std::string Spelled::*naming) const;
  std::string Add(Spelled spelled);

  const std::set<std::string>& taken_;  // what the dialect's texts mention and call
  std::vector<Spelled> all_;            // by the number that its sign holds
  std::vector<size_t> active_;          // numbers of those in the scopes around
};

// Whether `name` is, or may be, a word of C++ or OpenCL C, a type or a macro of their compilers.
bool IsReserved(absl::string_view name);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_NAMES_H_
