// Whose word a final is, and who agrees: what is served as validated (docs/service.md).
#ifndef HEDDLE_SERVER_DB_TRUST_CONFIRMATIONS_H_
#define HEDDLE_SERVER_DB_TRUST_CONFIRMATIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "measure/device/outcome.h"
#include "search_space/ir/tensor_program.h"
#include "tuner/records/records.h"

namespace heddle::server {

// Where a final of the fleet comes from.
struct FinalOrigin {
  std::string host;
  int64_t token = 0;        // of the daemon; 0 = it came over the server's socket
  int64_t lease = 0;        // what was measured together has the same
  bool is_default = false;  // the default schedule
};

// Hosts agree on a schedule when its time, and its time relative to that of the default schedule
// measured beside it, differ by no more than this share.
inline constexpr double kAgreement = 0.10;

// Whether the word of the second host is one more than that of the first: those of one token are
// one, except where they come over the server's own socket.
bool IsAnother(const std::string& host, int64_t token, const std::string& other_host,
               int64_t other_token);

// Times of a schedule and of the default one, measured together; 0 = not known.
struct Measured {
  double time_us = 0, default_us = 0;
};
bool Agree(const Measured& a, const Measured& b);

// Remembers where the trial comes from. To be called in the transaction that adds it.
absl::Status AddOrigin(tuner::Records& records, int64_t trial, const FinalOrigin& origin);

// The best that may be served.
struct Served {
  tuner::Records::Best best;
  int confirmations = 0;  // hosts besides the one of the record that agree with it
  bool validated = false;
};
// The fastest that is validated, else the fastest. Validated are, on a model that is `known`, what
// the database's owner measured without a fleet, what a host has measured that `trusts` accepts,
// and what has a confirmation.
absl::StatusOr<std::optional<Served>> FindServed(
    tuner::Records& records, const search_space::TensorProgram& program, const tuner::Bench& bench,
    bool known, const std::function<bool(const std::string&)>& trusts);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_TRUST_CONFIRMATIONS_H_
