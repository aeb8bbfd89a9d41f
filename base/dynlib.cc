#include "base/dynlib.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace heddle {
namespace {

// The build id among the notes of an ELF segment, in hexadecimal; "" when there is none.
std::string BuildIdIn(absl::string_view notes) {
  const auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t name = sizeof note, id = name + padded(note.n_namesz);
    if (id + note.n_descsz > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(name, 3) == "GNU") {
      return absl::BytesToHexString(notes.substr(id, note.n_descsz));
    }
    notes.remove_prefix(std::min(notes.size(), id + padded(note.n_descsz)));
  }
  return "";
}

}  // namespace

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

std::string DynLib::build() const {
  struct Search {
    ElfW(Addr) base = 0;
    std::string id;
  } search;
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0) {
    search.base = map->l_addr;
    const auto look = [](dl_phdr_info* info, size_t, void* to) {
      auto& found = *static_cast<Search*>(to);
      if (info->dlpi_addr != found.base) return 0;
      for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& header = info->dlpi_phdr[i];
        if (header.p_type != PT_NOTE) continue;
        const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
        found.id = BuildIdIn({notes, header.p_filesz});
        if (!found.id.empty()) break;
      }
      return 1;
    };
    dl_iterate_phdr(look, &search);
  }
  if (search.id.empty()) {
    std::stringstream file;
    file << std::ifstream(path(), std::ios::binary).rdbuf();
    search.id = HexHashOf(file.str());
  }
  return search.id.substr(0, 16);
}

absl::Status DynLib::Missing(const char* symbol) const {
  return absl::NotFoundError(
      absl::StrCat(path(), " has no symbol ", symbol, "; its version is not supported"));
}

}  // namespace heddle
