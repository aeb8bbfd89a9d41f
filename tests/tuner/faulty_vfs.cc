#include "tests/tuner/faulty_vfs.h"

#include <sqlite3.h>
#include <unistd.h>

#include <limits>

namespace heddle::tuner {
namespace {

struct State {
  sqlite3_vfs* real = nullptr;
  sqlite3_vfs shim;
  int left = std::numeric_limits<int>::max();  // until the fault
  int code = SQLITE_OK;
  bool exits = false;
  int writes = 0;
};
State state;

// Followed in memory by the real file.
struct File {
  sqlite3_file base;
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
sqlite3_file* RealOf(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real(); }

// Counts a write; the code to fail with, or SQLITE_OK.
int Count() {
  ++state.writes;
  if (state.left > 0) {
    --state.left;
    return SQLITE_OK;
  }
  return state.code;
}

int Write(sqlite3_file* file, const void* data, int bytes, sqlite3_int64 offset) {
  sqlite3_file* real = RealOf(file);
  const int code = Count();
  if (code != SQLITE_OK) return code;
  if (state.exits && state.left == 0) {
    real->pMethods->xWrite(real, data, bytes / 2, offset);
    _exit(0);
  }
  return real->pMethods->xWrite(real, data, bytes, offset);
}
int Sync(sqlite3_file* file, int flags) {
  const int code = Count();
  if (code != SQLITE_OK) return code;
  if (state.exits && state.left == 0) _exit(0);
  return RealOf(file)->pMethods->xSync(RealOf(file), flags);
}

// Passes a method on.
template <auto method>
struct Pass;
template <typename... Args, int (*sqlite3_io_methods::*method)(sqlite3_file*, Args...)>
struct Pass<method> {
  static int Call(sqlite3_file* file, Args... args) {
    return (RealOf(file)->pMethods->*method)(RealOf(file), args...);
  }
};
void ShmBarrier(sqlite3_file* file) { RealOf(file)->pMethods->xShmBarrier(RealOf(file)); }

using Io = sqlite3_io_methods;
constexpr Io kMethods = {.iVersion = 3,
                         .xClose = Pass<&Io::xClose>::Call,
                         .xRead = Pass<&Io::xRead>::Call,
                         .xWrite = Write,
                         .xTruncate = Pass<&Io::xTruncate>::Call,
                         .xSync = Sync,
                         .xFileSize = Pass<&Io::xFileSize>::Call,
                         .xLock = Pass<&Io::xLock>::Call,
                         .xUnlock = Pass<&Io::xUnlock>::Call,
                         .xCheckReservedLock = Pass<&Io::xCheckReservedLock>::Call,
                         .xFileControl = Pass<&Io::xFileControl>::Call,
                         .xSectorSize = Pass<&Io::xSectorSize>::Call,
                         .xDeviceCharacteristics = Pass<&Io::xDeviceCharacteristics>::Call,
                         .xShmMap = Pass<&Io::xShmMap>::Call,
                         .xShmLock = Pass<&Io::xShmLock>::Call,
                         .xShmBarrier = ShmBarrier,
                         .xShmUnmap = Pass<&Io::xShmUnmap>::Call,
                         .xFetch = Pass<&Io::xFetch>::Call,
                         .xUnfetch = Pass<&Io::xUnfetch>::Call};

int Open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  const int code = state.real->xOpen(state.real, name, RealOf(file), flags, out_flags);
  file->pMethods = RealOf(file)->pMethods != nullptr ? &kMethods : nullptr;
  return code;
}

}  // namespace

FaultyVfs::FaultyVfs() {
  state = State();
  state.real = sqlite3_vfs_find(nullptr);
  state.shim = *state.real;
  state.shim.zName = "faulty";
  state.shim.szOsFile = static_cast<int>(sizeof(File)) + state.real->szOsFile;
  state.shim.xOpen = Open;
  sqlite3_vfs_register(&state.shim, /*makeDflt=*/1);
}

FaultyVfs::~FaultyVfs() {
  sqlite3_vfs_unregister(&state.shim);
  sqlite3_vfs_register(state.real, /*makeDflt=*/1);
}

void FaultyVfs::FailAfter(int writes, int code) {
  state.left = writes;
  state.code = code;
}
void FaultyVfs::ExitAfter(int writes) {
  state.left = writes;
  state.exits = true;
}
void FaultyVfs::Heal() {
  state.left = std::numeric_limits<int>::max();
  state.code = SQLITE_OK;
  state.exits = false;
}
int FaultyVfs::writes() const { return state.writes; }

}  // namespace heddle::tuner
