// Visitors of the fields of a struct: a template lists the fields once, as visit(name, field), and
// printing, parsing, storing and hashing are what is done at each.
#ifndef HEDDLE_BASE_FIELDS_H_
#define HEDDLE_BASE_FIELDS_H_

#include <utility>

namespace heddle {

// For fields that a later version added, `Later(visit)(name, field)`: a visitor to which it matters
// that older data lacks them has a `later()`, which visits those; to others they are as any field.
template <typename Visitor>
decltype(auto) Later(Visitor&& visit) {
  if constexpr (requires { visit.later(); }) {
    return visit.later();
  } else {
    return std::forward<Visitor>(visit);
  }
}

}  // namespace heddle

#endif  // HEDDLE_BASE_FIELDS_H_
