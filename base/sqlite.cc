#include "base/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"

namespace heddle {
namespace {

// A path as a file: URI, whose special characters are percent-encoded.
std::string UriOf(const std::string& path, const char* query) {
  std::string uri = "file:";
  for (unsigned char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      uri += absl::StrCat("%", absl::Hex(c, absl::kZeroPad2));
    } else {
      uri += static_cast<char>(c);
    }
  }
  return uri + query;
}

// What a savepoint may have to restore stays in memory up to so many bytes. SQLite's own limit is
// 64 KiB, 16 pages, beyond which each transaction of the server made and wrote a temporary file.
constexpr int kMaxSavepointBytes = 1 << 20;

// Once, before anything else of SQLite is used.
void Configure() {
  static const int done = sqlite3_config(SQLITE_CONFIG_STMTJRNL_SPILL, kMaxSavepointBytes);
  static_cast<void>(done);
}

}  // namespace

Cursor::Cursor(Cursor&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      status_(std::move(other.status_)),
      bound_(other.bound_) {}

Cursor::~Cursor() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Cursor::Bind(int64_t value) {
  if (!status_.ok()) return;
  int code = sqlite3_bind_int64(statement_, ++bound_, value);
  if (code != SQLITE_OK) status_ = database_->Error(code);
}

void Cursor::Bind(double value) {
  if (!status_.ok()) return;
  int code = sqlite3_bind_double(statement_, ++bound_, value);
  if (code != SQLITE_OK) status_ = database_->Error(code);
}

void Cursor::Bind(const std::string& value) {
  if (!status_.ok()) return;
  int code = sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT,
                                 SQLITE_UTF8);
  if (code != SQLITE_OK) status_ = database_->Error(code);
}

void Cursor::Bind(const Blob& value) {
  if (!status_.ok()) return;
  int code = sqlite3_bind_blob64(statement_, ++bound_, value.bytes.data(), value.bytes.size(),
                                 SQLITE_TRANSIENT);
  if (code != SQLITE_OK) status_ = database_->Error(code);
}

void Cursor::BindNull() {
  if (!status_.ok()) return;
  int code = sqlite3_bind_null(statement_, ++bound_);
  if (code != SQLITE_OK) status_ = database_->Error(code);
}

absl::StatusOr<bool> Cursor::Next() {
  if (!status_.ok()) return status_;
  int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return status_ = database_->Error(code);
}

int64_t Cursor::Int(int column) const { return sqlite3_column_int64(statement_, column); }
double Cursor::Real(int column) const { return sqlite3_column_double(statement_, column); }
bool Cursor::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}
std::string Cursor::Text(int column) const {
  const void* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return std::string(static_cast<const char*>(text), sqlite3_column_bytes(statement_, column));
}

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
void Database::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::~Database() = default;

absl::StatusOr<Database> Database::Open(const std::string& path, Mode mode) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  if (mode == Mode::kImmutable) {
    flags |= SQLITE_OPEN_READONLY;
  } else {
    flags |= SQLITE_OPEN_READWRITE | (mode == Mode::kCreate ? SQLITE_OPEN_CREATE : 0);
  }
  std::string uri = UriOf(path, mode == Mode::kImmutable ? "?immutable=1" : "");
  sqlite3* handle = nullptr;
  Configure();
  int code = sqlite3_open_v2(uri.c_str(), &handle, flags, nullptr);
  Database database(path, handle);
  if (code != SQLITE_OK) return database.Error(code);
  sqlite3_extended_result_codes(handle, 1);
  // A hostile file must not be able to run anything, nor a bug of ours to write past the schema.
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  database.set_patience(database.patience_);
  return database;
}

void Database::set_patience(absl::Duration patience) {
  patience_ = patience;
  sqlite3_busy_timeout(handle(), static_cast<int>(absl::ToInt64Milliseconds(patience)));
}

Cursor Database::Prepare(const std::string& sql) {
  auto& statement = statements_[sql];
  if (statement == nullptr) {
    sqlite3_stmt* prepared = nullptr;
    int code = sqlite3_prepare_v3(handle(), sql.data(), static_cast<int>(sql.size()),
                                  SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
    if (code != SQLITE_OK) {
      statements_.erase(sql);
      return Cursor(*this, nullptr, Error(code));
    }
    statement.reset(prepared);
  }
  return Cursor(*this, statement.get(), absl::OkStatus());
}

absl::Status Database::Script(const std::string& sql) {
  int code = sqlite3_exec(handle(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::Status Database::Transaction(absl::FunctionRef<absl::Status()> body) {
  // SQLite's own waiting does not cover every case (it gives up at once while another process
  // recovers the log), hence the loop.
  const SteadyTime deadline = SteadyNow() + patience_;
  absl::Status status;
  while (absl::IsUnavailable(status = Run("BEGIN IMMEDIATE")) && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  if (!status.ok()) return status;
  status = body();
  if (status.ok()) status = Run("COMMIT");
  // Some errors, a full disk among them, have rolled back already.
  if (!status.ok() && sqlite3_get_autocommit(handle()) == 0) Run("ROLLBACK").IgnoreError();
  return status;
}

int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(handle()); }
bool Database::read_only() const { return sqlite3_db_readonly(handle(), "main") == 1; }

absl::Status Database::Error(int code) const {
  const char* what = handle() != nullptr ? sqlite3_errmsg(handle()) : sqlite3_errstr(code);
  const std::string where = absl::StrCat(path_, ": ");
  const std::string cause = absl::StrCat(" (SQLite: ", what, ", code ", code, ")");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(
          absl::StrCat(where, "another process has kept the database locked for ",
                       absl::FormatDuration(patience_), "; try again, or end that process (fuser ",
                       path_, " names it)", cause));
    case SQLITE_INTERRUPT:
      return absl::CancelledError(absl::StrCat(where, "the caller has given this up", cause));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat(where,
                       "the disk is full; nothing was half-written, and writing goes on as "
                       "soon as space is freed there",
                       cause));
    case SQLITE_IOERR:
      return absl::ResourceExhaustedError(
          absl::StrCat(where,
                       "the file system failed to read or write; nothing was half-written. Check "
                       "the quota, free space or check the disk (dmesg), and try again",
                       cause));
    case SQLITE_CORRUPT:
      return absl::DataLossError(
          absl::StrCat(where,
                       "the database is damaged. Salvage what is readable with `heddle "
                       "records export`, move the file away and import the result",
                       cause));
    case SQLITE_NOTADB:
      return absl::FailedPreconditionError(
          absl::StrCat(where,
                       "this is not a database of Heddle's, nor of SQLite's; name another "
                       "file, or restore this one from a backup",
                       cause));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::PermissionDeniedError(
          absl::StrCat(where,
                       "the database can only be read here; change the permissions of the "
                       "file and of its folder, or name another file",
                       cause));
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(
          absl::StrCat(where,
                       "the file cannot be opened; check that its folder exists and that "
                       "both may be read and written, or name another file",
                       cause));
    default:
      return absl::InternalError(absl::StrCat(where, "the database refused a statement", cause));
  }
}

}  // namespace heddle
