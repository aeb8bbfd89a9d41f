// Who may call what. Tokens are random; the database holds their SHA-256 only, which for 256 random
// bits needs no salt.
#ifndef HEDDLE_SERVER_DB_TRUST_AUTH_H_
#define HEDDLE_SERVER_DB_TRUST_AUTH_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tuner/records/records.h"

namespace heddle::server {

enum class Role : uint8_t { kReader, kTuner, kDaemon, kMeasurer, kAdmin };
const char* NameOf(Role role);  // "reader", ...
std::optional<Role> ParseRole(const std::string& name);
// A tuner may what a reader may; an administrator everything.
bool Includes(Role has, Role needed);

struct Caller {
  std::string tenant;
  Role role = Role::kReader;
  int64_t token = 0;        // TokenInfo::id; 0 = none was needed
  std::string certificate;  // the names in the one that TLS has checked; empty without
  std::string peer;         // address, for logs
  std::string host;  // a daemon's or measurer's: the only one that it may speak for; "" = any
};
// The tenant whose jobs the caller sees: "" = everybody's.
inline std::string VisibleTenant(const Caller& caller) {
  return caller.role == Role::kAdmin ? "" : caller.tenant;
}

struct TokenInfo {
  int64_t id = 0;
  std::string tenant, note;
  Role role = Role::kReader;
  std::string host;  // as Caller::host
  absl::Time created;
  std::optional<absl::Time> revoked, expires, last_used;
};

// A new token, which is to be shown once: only its hash is kept. InvalidArgument: a tenant that is
// no name, a host for another role than a daemon's or a measurer's.
absl::StatusOr<std::string> CreateToken(tuner::Records& records, const TokenInfo& token,
                                        absl::Time now);
absl::StatusOr<std::vector<TokenInfo>> ListTokens(tuner::Records& records);
// NotFound; revoking again changes nothing.
absl::Status RevokeToken(tuner::Records& records, int64_t id, absl::Time now);
// Unauthenticated unless the token is valid; certificate and peer are left to the caller. `unused`
// is for how long nobody has used it, as far as NoteUse knows.
absl::StatusOr<Caller> FindToken(tuner::Records& records, const std::string& token, absl::Time now,
                                 absl::Duration* unused);
// Unauthenticated once the caller's token has been revoked or has expired: for streams, which
// outlive the moment when it was looked at.
absl::Status StillValid(tuner::Records& records, const Caller& caller, absl::Time now);
absl::Status NoteUse(tuner::Records& records, int64_t id, absl::Time now);

// 1 to 64 letters, digits, '-', '_', '.'.
bool IsTenant(const std::string& name);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_TRUST_AUTH_H_
