// Who may speak for which host, and whose word needs no second one.
#ifndef HEDDLE_SERVER_FLEET_DEVICES_HOSTS_H_
#define HEDDLE_SERVER_FLEET_DEVICES_HOSTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "heddle/v1/fleet.pb.h"
#include "server/db/trust/auth.h"
#include "tuner/records/records.h"

namespace heddle::server {

// What is believed of each host: what is stored, and claims that are on their way to the database.
class Hosts {
 public:
  // In place of what was believed.
  void Load(const std::vector<v1::FleetHost>& stored);
  void Take(const v1::FleetHost& stored);

  // Gives the host to the caller until the claim is written or could not be, which Believe tells;
  // or says why not. `revoked`: the token that it belonged to a moment ago, where that is not valid
  // any more.
  absl::Status Claim(const Caller& caller, const std::string& host, std::optional<int64_t> revoked);
  // After a write of a host, a claim or not: what is stored is so, but for claims on their way.
  // True: the host has been released by it, and its sessions are to end.
  bool Believe(const v1::FleetHost& stored, const absl::Status& status, bool claim);

  bool Knows(const std::string& host) const { return hosts_.contains(host); }
  bool Trusts(const std::string& host) const;
  // 0 where it is not known.
  int64_t TokenOf(const std::string& host) const;
  std::vector<v1::FleetHost> All() const;

 private:
  struct Entry {
    int64_t token = 0;
    bool trusted = false, released = false;
    std::optional<v1::FleetHost> stored;  // in the database
    int claims = 0;                       // of the token, that are not written yet
  };
  std::map<std::string, Entry> hosts_;
};

// To be called in a write: that the host of `stored` belongs to the token. Where it did already it
// stays trusted, if it was. `stored` is then as the database has it.
absl::Status StoreClaim(tuner::Records& records, int64_t token, v1::FleetHost& stored);
// To be called in a write: what an administrator says of a host that belonged to the token when he
// said it; Aborted where it does not any more.
absl::Status StoreAction(tuner::Records& records, const std::string& host,
                         v1::SetHostRequest::Action action, int64_t token, v1::FleetHost& stored);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_DEVICES_HOSTS_H_
