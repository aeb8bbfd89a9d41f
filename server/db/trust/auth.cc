#include "server/db/trust/auth.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"

namespace heddle::server {
namespace {

// Recognisable by scanners for leaked secrets.
constexpr char kPrefix[] = "heddle_";
constexpr int kRandomBytes = 32;

std::string HashOf(const std::string& token) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// Of a row of token: whether it is valid at the moment that is bound to it.
constexpr char kIsValid[] = "revoked_us = 0 AND (expires_us = 0 OR expires_us > ?)";

absl::Status NotValid() {
  return absl::UnauthenticatedError(
      "the token is not known here, was revoked or has expired; ask the server's administrator for "
      "one (heddle token create)");
}

std::optional<absl::Time> TimeAt(int64_t micros) {
  if (micros == 0) return std::nullopt;
  return absl::FromUnixMicros(micros);
}

}  // namespace

const char* NameOf(Role role) {
  constexpr const char* kNames[] = {"reader", "tuner", "daemon", "measurer", "admin"};
  return kNames[static_cast<int>(role)];
}

std::optional<Role> ParseRole(const std::string& name) {
  for (Role role : {Role::kReader, Role::kTuner, Role::kDaemon, Role::kMeasurer, Role::kAdmin}) {
    if (name == NameOf(role)) return role;
  }
  return std::nullopt;
}

bool Includes(Role has, Role needed) {
  return has == needed || has == Role::kAdmin || (has == Role::kTuner && needed == Role::kReader);
}

bool IsTenant(const std::string& name) {
  if (name.empty() || name.size() > 64) return false;
  for (char c : name) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') return false;
  }
  return true;
}

absl::StatusOr<std::string> CreateToken(tuner::Records& records, const TokenInfo& info,
                                        absl::Time now) {
  if (!IsTenant(info.tenant)) {
    return absl::InvalidArgumentError(
        "a tenant's name is 1 to 64 letters, digits, '-', '_' or '.'");
  }
  if (!info.host.empty() && info.role != Role::kDaemon && info.role != Role::kMeasurer) {
    return absl::InvalidArgumentError("only a daemon's or a measurer's token belongs to a host");
  }
  std::array<unsigned char, kRandomBytes> random;
  if (RAND_bytes(random.data(), kRandomBytes) != 1) {
    return absl::InternalError("the system gave no random bytes");
  }
  const std::string token =
      kPrefix + absl::BytesToHexString(
                    std::string(reinterpret_cast<const char*>(random.data()), kRandomBytes));
  HEDDLE_RETURN_IF_ERROR(records.Batch([&] {
    return records.database().Run(
        "INSERT INTO token (hash, tenant, role, note, created_us, revoked_us, expires_us, host) "
        "VALUES (?, ?, ?, ?, ?, 0, ?, ?)",
        HashOf(token), info.tenant, std::string(NameOf(info.role)), info.note,
        absl::ToUnixMicros(now), info.expires ? absl::ToUnixMicros(*info.expires) : 0, info.host);
  }));
  return token;
}

absl::StatusOr<std::vector<TokenInfo>> ListTokens(tuner::Records& records) {
  std::vector<TokenInfo> tokens;
  Cursor row = records.database().Query(
      "SELECT id, tenant, note, role, created_us, revoked_us, expires_us, last_used_us, host "
      "FROM token ORDER BY id");
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    TokenInfo token;
    token.id = row.Int(0);
    token.tenant = row.Text(1);
    token.note = row.Text(2);
    token.role = ParseRole(row.Text(3)).value_or(Role::kReader);
    token.created = absl::FromUnixMicros(row.Int(4));
    token.revoked = TimeAt(row.Int(5));
    token.expires = TimeAt(row.Int(6));
    token.last_used = TimeAt(row.Int(7));
    token.host = row.Text(8);
    tokens.push_back(std::move(token));
  }));
  return tokens;
}

absl::Status RevokeToken(tuner::Records& records, int64_t id, absl::Time now) {
  return records.Batch([&]() -> absl::Status {
    auto found = records.database().QueryInt("SELECT id FROM token WHERE id = ?", id);
    if (absl::IsNotFound(found.status())) {
      return absl::NotFoundError(
          absl::StrCat("there is no token ", id, "; `heddle token list` shows them"));
    }
    HEDDLE_RETURN_IF_ERROR(found);
    return records.database().Run("UPDATE token SET revoked_us = ? WHERE id = ? AND revoked_us = 0",
                                  absl::ToUnixMicros(now), id);
  });
}

absl::StatusOr<Caller> FindToken(tuner::Records& records, const std::string& token, absl::Time now,
                                 absl::Duration* unused) {
  Cursor row = records.database().Query(
      absl::StrCat("SELECT tenant, role, id, host, last_used_us FROM token WHERE hash = ? AND ",
                   kIsValid),
      HashOf(token), absl::ToUnixMicros(now));
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  const auto role = found ? ParseRole(row.Text(1)) : std::nullopt;
  if (!role) return NotValid();
  *unused = now - absl::FromUnixMicros(row.Int(4));
  return Caller{row.Text(0), *role, row.Int(2), "", "", row.Text(3)};
}

absl::Status StillValid(tuner::Records& records, const Caller& caller, absl::Time now) {
  if (caller.token == 0) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(
      valid, records.database().QueryInt(
                 absl::StrCat("SELECT count(*) FROM token WHERE id = ? AND ", kIsValid),
                 caller.token, absl::ToUnixMicros(now)));
  return valid > 0 ? absl::OkStatus() : NotValid();
}

absl::Status NoteUse(tuner::Records& records, int64_t id, absl::Time now) {
  return records.database().Run("UPDATE token SET last_used_us = max(last_used_us, ?) WHERE id = ?",
                                absl::ToUnixMicros(now), id);
}

}  // namespace heddle::server
