#include "server/api/audit.h"

#include "base/log.h"

namespace heddle::server {

void LogChange(const Caller& caller, const char* method, const std::string& request_id,
               const absl::Status& status, nlohmann::json what) {
  what.update({{"method", method},
               {"tenant", caller.tenant},
               {"token", caller.token},
               {"role", NameOf(caller.role)},
               {"peer", caller.peer},
               {"request_id", request_id},
               {"code", absl::StatusCodeToString(status.code())}});
  if (!caller.certificate.empty()) what["certificate"] = caller.certificate;
  LogEvent(status.ok() ? Severity::kInfo : Severity::kWarning, "change", what);
}

}  // namespace heddle::server
