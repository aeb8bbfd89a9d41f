// Whose the runs are that nodes append (Records.Append).
#ifndef HEDDLE_SERVER_DB_RUN_OWNER_H_
#define HEDDLE_SERVER_DB_RUN_OWNER_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/db/trust/auth.h"
#include "tuner/records/records.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::server {

// To be called in the write that appends: an attempt belongs to the token and the certificate that
// append to it first, so that nobody else who has a token of the tenant speaks in its name.
// PermissionDenied with the reason RUN_BOUND where the attempt is another's, or where a later one
// is and nobody has begun this: the engine that requeues a run begins it on another node as a later
// attempt, which is that node's. Attempts of a token that has been revoked or has expired are
// nobody's. A caller without a token is the database's owner, whom this does not concern.
absl::Status ClaimAttempt(tuner::Records& records, const Caller& caller,
                          const tuner::RunHeader& attempt, absl::Time now);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_RUN_OWNER_H_
