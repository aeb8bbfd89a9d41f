#include "base/dynlib.h"

#include <dlfcn.h>
#include <link.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle {

DynLib::DynLib(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}

DynLib::DynLib(DynLib&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynLib& DynLib::operator=(DynLib&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

DynLib::~DynLib() {
  if (handle_ != nullptr) dlclose(handle_);
}

absl::StatusOr<DynLib> DynLib::Open(const std::string& name) {
  if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return DynLib(handle, name);
  const char* why = dlerror();
  return absl::NotFoundError(why != nullptr ? why : absl::StrCat(name, ": cannot be loaded"));
}

absl::StatusOr<DynLib> DynLib::OpenFirst(const std::vector<std::string>& names) {
  std::string tried;
  for (const std::string& name : names) {
    absl::StatusOr<DynLib> library = Open(name);
    if (library.ok()) return library;
    absl::StrAppend(&tried, tried.empty() ? "" : "; ", library.status().message());
  }
  return absl::NotFoundError(tried);
}

void* DynLib::Find(const char* symbol) const { return dlsym(handle_, symbol); }

std::string DynLib::path() const {
  link_map* map = nullptr;
  const bool known = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return known ? map->l_name : name_;
}

absl::Status DynLib::Missing(const char* symbol) const {
  return absl::NotFoundError(
      absl::StrCat(path(), " has no symbol ", symbol, "; its version is not supported"));
}

}  // namespace heddle
