// A shared library loaded at run time, so that one binary starts where the library is missing.
#ifndef HEDDLE_BASE_DYNLIB_H_
#define HEDDLE_BASE_DYNLIB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle {

// Owns one dlopen handle. Movable; thread-safe once open.
class DynLib {
 public:
  // `name` as dlopen takes it: a file name searched on the loader's path, or a path. NotFound
  // carries the loader's own words.
  static absl::StatusOr<DynLib> Open(const std::string& name);
  // The first of `names` that opens. NotFound carries what the loader said of each.
  static absl::StatusOr<DynLib> OpenFirst(const std::vector<std::string>& names);

  DynLib(DynLib&& other) noexcept;
  DynLib& operator=(DynLib&& other) noexcept;
  ~DynLib();

  // The address of a symbol, null when the library has none of that name.
  void* Find(const char* symbol) const;

  // Sets `function` (a pointer to a function) to a symbol's address. NotFound names symbol and
  // library.
  template <typename Function>
  absl::Status Bind(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    return function != nullptr ? absl::OkStatus() : Missing(symbol);
  }

  const std::string& name() const { return name_; }  // as it was opened
  // The file that the loader chose; name() when it does not say.
  std::string path() const;
  // What tells this build of the library from every other: 16 hexadecimal digits of the build id
  // that the linker gave it, or, without one, of a hash of the file.
  std::string build() const;

 private:
  DynLib(void* handle, std::string name);
  absl::Status Missing(const char* symbol) const;

  void* handle_;
  std::string name_;
};

}  // namespace heddle

#endif  // HEDDLE_BASE_DYNLIB_H_
