// A thin layer over SQLite: connections, cached statements, transactions, and errors that name the
// file and the remedy.
#ifndef HEDDLE_BASE_SQLITE_H_
#define HEDDLE_BASE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace heddle {

// Bytes that are no text, to be bound as such.
struct Blob {
  const std::string& bytes;
};

// One execution of a statement. Ends with its destruction, and with it the read it held open.
class Cursor {
 public:
  Cursor(Cursor&& other) noexcept;
  Cursor& operator=(Cursor&&) = delete;
  ~Cursor();

  // The next parameter's value.
  void Bind(int64_t value);
  void Bind(int value) { Bind(static_cast<int64_t>(value)); }
  void Bind(double value);
  void Bind(const std::string& value);
  void Bind(const Blob& value);
  void BindNull();

  // Executes up to the next row: false when there is none.
  absl::StatusOr<bool> Next();
  // Calls `visit` at each row from the next one on. It may return an absl::Status: one that is not
  // OK ends that and is returned.
  template <typename Visit>
  absl::Status ForEachRow(const Visit& visit) {
    for (;;) {
      HEDDLE_ASSIGN_OR_RETURN(more, Next());
      if (!more) return absl::OkStatus();
      if constexpr (std::is_void_v<std::invoke_result_t<const Visit&>>) {
        visit();
      } else {
        HEDDLE_RETURN_IF_ERROR(visit());
      }
    }
  }

  // The current row's columns, counted from 0.
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;  // "" for NULL; of a blob its bytes
  bool IsNull(int column) const;

 private:
  friend class Database;
  Cursor(class Database& database, sqlite3_stmt* statement, absl::Status status)
      : database_(&database), statement_(statement), status_(std::move(status)) {}

  class Database* database_;
  sqlite3_stmt* statement_;  // owned by the database
  absl::Status status_;      // of preparing and binding
  int bound_ = 0;
};

// One connection. Movable; not thread-safe.
class Database {
 public:
  enum class Mode { kReadWrite, kCreate, kImmutable };
  // kReadWrite and kCreate fall back to reading where the file cannot be written. kImmutable: for a
  // file in a folder that cannot be written, without the shared memory that WAL needs.
  static absl::StatusOr<Database> Open(const std::string& path, Mode mode);
  Database(Database&&) noexcept = default;
  ~Database();

  // A cursor over a statement that is prepared once and kept. The same text must not be queried
  // again while a cursor over it lives. Failures to prepare or bind come out of Next.
  template <typename... Args>
  Cursor Query(const std::string& sql, const Args&... args) {
    Cursor cursor = Prepare(sql);
    (cursor.Bind(args), ...);
    return cursor;
  }
  // Runs a statement to its end.
  template <typename... Args>
  absl::Status Run(const std::string& sql, const Args&... args) {
    Cursor cursor = Query(sql, args...);
    return cursor.Next().status();
  }
  // The first column of the first row; NotFound without one.
  template <typename... Args>
  absl::StatusOr<int64_t> QueryInt(const std::string& sql, const Args&... args) {
    Cursor cursor = Query(sql, args...);
    HEDDLE_ASSIGN_OR_RETURN(row, cursor.Next());
    if (!row) return absl::NotFoundError("no row");
    return cursor.Int(0);
  }
  // The first column of every row.
  template <typename... Args>
  absl::StatusOr<std::vector<int64_t>> QueryInts(const std::string& sql, const Args&... args) {
    std::vector<int64_t> values;
    Cursor cursor = Query(sql, args...);
    HEDDLE_RETURN_IF_ERROR(cursor.ForEachRow([&] { values.push_back(cursor.Int(0)); }));
    return values;
  }
  // Runs several statements separated by semicolons, without parameters.
  absl::Status Script(const std::string& sql);

  // Runs `body` between BEGIN IMMEDIATE and COMMIT; an error of either rolls everything back. An
  // immediate transaction waits for another writer instead of failing in the middle, as an upgraded
  // read would.
  absl::Status Transaction(absl::FunctionRef<absl::Status()> body);

  int64_t last_insert_id() const;
  // Whether the file can only be read.
  bool read_only() const;
  const std::string& path() const { return path_; }
  sqlite3* handle() const { return handle_.get(); }
  // How long to wait for other writers before giving up.
  void set_patience(absl::Duration patience);

  // The status for a failed call: what, where and what to do about it.
  absl::Status Error(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Database(const std::string& path, sqlite3* handle) : path_(path), handle_(handle) {}
  Cursor Prepare(const std::string& sql);

  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
  absl::flat_hash_map<std::string, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
  absl::Duration patience_ = absl::Seconds(30);
};

}  // namespace heddle

#endif  // HEDDLE_BASE_SQLITE_H_
