#include "server/fleet/devices/hosts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "server/db/errors.h"
#include "server/db/fleet_store.h"

namespace heddle::server {

void Hosts::Load(const std::vector<v1::FleetHost>& stored) {
  hosts_.clear();
  for (const v1::FleetHost& host : stored) Take(host);
}

void Hosts::Take(const v1::FleetHost& stored) {
  hosts_[stored.host_uuid()] = {stored.token(), stored.trusted(), stored.released(), stored};
}

absl::Status Hosts::Claim(const Caller& caller, const std::string& host,
                          std::optional<int64_t> revoked) {
  if (!caller.host.empty() && caller.host != host) {
    return ErrorWithReason(absl::StatusCode::kPermissionDenied, "HOST_BOUND",
                           absl::StrCat("host_uuid: the token is for the host ", caller.host,
                                        " only; give each host its own"));
  }
  auto [it, added] = hosts_.try_emplace(host);
  Entry& entry = it->second;
  if (added || entry.released || revoked == entry.token) {
    entry.trusted = entry.released = false;  // trust was in the old one
    entry.token = caller.token;
  }
  if (entry.token == caller.token) {
    ++entry.claims;
    return absl::OkStatus();
  }
  LogEvent(
      Severity::kWarning, "foreign_host",
      {{"host", host}, {"token", caller.token}, {"owner", entry.token}, {"peer", caller.peer}});
  return ErrorWithReason(
      absl::StatusCode::kPermissionDenied, "HOST_BOUND",
      absl::StrCat("host_uuid: ", host,
                   " belongs to another token; use that one, have it revoked, or let an "
                   "administrator release the host: heddle devices release ",
                   host));
}

bool Hosts::Believe(const v1::FleetHost& stored, const absl::Status& status, bool claim) {
  const std::string& host = stored.host_uuid();
  Entry& entry = hosts_[host];
  if (claim) --entry.claims;
  if (status.ok()) entry.stored = stored;
  // A claim that is on its way is believed, so that nobody else makes one meanwhile.
  if (entry.claims > 0 && (!entry.stored || entry.stored->token() != entry.token)) return false;
  if (!entry.stored) {
    hosts_.erase(host);
    return false;
  }
  const bool released = entry.stored->released() && !entry.released;
  entry.token = entry.stored->token();
  entry.trusted = entry.stored->trusted();
  entry.released = entry.stored->released();
  return released;
}

bool Hosts::Trusts(const std::string& host) const {
  const auto it = hosts_.find(host);
  return it != hosts_.end() && it->second.trusted;
}

int64_t Hosts::TokenOf(const std::string& host) const {
  const auto it = hosts_.find(host);
  return it == hosts_.end() ? 0 : it->second.token;
}

std::vector<v1::FleetHost> Hosts::All() const {
  std::vector<v1::FleetHost> all;
  for (const auto& [name, entry] : hosts_) {
    v1::FleetHost& host = all.emplace_back();
    host.set_host_uuid(name);
    host.set_token(entry.token);
    host.set_trusted(entry.trusted);
    host.set_released(entry.released);
  }
  return all;
}

absl::Status StoreClaim(tuner::Records& records, int64_t token, v1::FleetHost& stored) {
  const auto known = LoadHost(records, stored.host_uuid());
  if (!known.ok() && !absl::IsNotFound(known.status())) return known.status();
  const bool same = known.ok() && known->token() == token && !known->released();
  stored.set_token(token);
  stored.set_trusted(same && known->trusted());
  stored.set_released(false);
  return SaveHost(records, stored);
}

absl::Status StoreAction(tuner::Records& records, const std::string& host,
                         v1::SetHostRequest::Action action, int64_t token, v1::FleetHost& stored) {
  HEDDLE_ASSIGN_OR_RETURN(known, LoadHost(records, host));
  stored = std::move(known);
  if (stored.token() != token) {
    return absl::AbortedError(
        absl::StrCat("the host ", host, " has come to another token meanwhile: look at it again"));
  }
  stored.set_trusted(action == v1::SetHostRequest::ACTION_TRUST);
  if (action == v1::SetHostRequest::ACTION_RELEASE) stored.set_released(true);
  return SaveHost(records, stored);
}

}  // namespace heddle::server
