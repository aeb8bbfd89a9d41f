// One line of the log for every change that a caller has asked for: who, what, and what became of
// it, so that a token that was lost, or a person, can be followed afterwards.
#ifndef HEDDLE_SERVER_API_AUDIT_H_
#define HEDDLE_SERVER_API_AUDIT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/db/trust/auth.h"
#include "server/engine/engine.h"

namespace heddle::server {

// {"event": "change", "method", "tenant", "token", "role", "peer", "request_id", "code", WHAT}. The
// token is its id; `request_id` is the caller's, "" where the call has none.
void LogChange(const Caller& caller, const char* method, const std::string& request_id,
               const absl::Status& status, nlohmann::json what);

// A reply that is logged first.
template <typename T>
Reply<T> Audited(const Caller& caller, const char* method, const std::string& request_id,
                 nlohmann::json what, Reply<T> reply) {
  return [=, what = std::move(what), reply = std::move(reply)](absl::StatusOr<T> result) {
    LogChange(caller, method, request_id, result.status(), what);
    reply(std::move(result));
  };
}

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_AUDIT_H_
