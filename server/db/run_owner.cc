#include "server/db/run_owner.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "server/db/errors.h"
#include "tuner/records/transfer/collect.h"

namespace heddle::server {
namespace {

std::string Describe(int64_t token, const std::string& certificate) {
  return absl::StrCat(
      "token ", token,
      certificate.empty() ? " and no certificate" : " and the certificate of " + certificate);
}

}  // namespace

absl::Status ClaimAttempt(tuner::Records& records, const Caller& caller,
                          const tuner::RunHeader& attempt, absl::Time now) {
  if (caller.token == 0) return absl::OkStatus();
  Database& db = records.database();
  const std::string run = tuner::RunOfTenant(caller.tenant, attempt.run);
  {
    // The attempt itself where it is somebody's, else the latest that is.
    Cursor row = db.Query(
        "SELECT a.number, a.token, a.certificate FROM attempt a "
        "LEFT JOIN token t ON t.id = a.token "
        "WHERE a.run = ?1 AND a.number >= ?2 AND a.token <> 0 AND coalesce(t.revoked_us, 1) = 0 "
        "AND (t.expires_us = 0 OR t.expires_us > ?3) ORDER BY a.number = ?2 DESC, a.number DESC "
        "LIMIT 1",
        run, attempt.attempt, absl::ToUnixMicros(now));
    HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
    if (found) {
      const int64_t number = row.Int(0), token = row.Int(1);
      const std::string certificate = row.Text(2);
      const bool own = token == caller.token && certificate == caller.certificate;
      if (own && number == attempt.attempt) return absl::OkStatus();
      if (!own) {
        LogEvent(Severity::kWarning, "foreign_run",
                 {{"run", absl::StrCat(attempt.run, ".", number)},
                  {"tenant", caller.tenant},
                  {"token", caller.token},
                  {"certificate", caller.certificate},
                  {"owner", token},
                  {"peer", caller.peer}});
        const std::string whose = absl::StrCat(Describe(token, certificate), ", not ",
                                               Describe(caller.token, caller.certificate));
        return ErrorWithReason(
            absl::StatusCode::kPermissionDenied, "RUN_BOUND",
            absl::StrCat(
                "run: ",
                number == attempt.attempt
                    ? absl::StrCat("attempt ", number, " of ", attempt.run, " was begun with ",
                                   whose, ": go on with those, or begin a later attempt")
                    : absl::StrCat("attempt ", number, " of ", attempt.run,
                                   ", which is later than ", attempt.attempt, ", was begun with ",
                                   whose, ": an attempt that was given up begins no more"),
                "; what is in the run's file the server's owner brings (heddle records collect)"));
      }
    }
  }
  return db.Run(
      "INSERT INTO attempt (run, number, token, certificate) VALUES (?, ?, ?, ?) "
      "ON CONFLICT (run, number) DO UPDATE SET token = excluded.token, "
      "certificate = excluded.certificate",
      run, attempt.attempt, caller.token, caller.certificate);
}

}  // namespace heddle::server
