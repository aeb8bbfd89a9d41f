// What an operator sets of the fleet, and the numbers that several parts of it go by.
#ifndef HEDDLE_SERVER_FLEET_EVENT_OPTIONS_H_
#define HEDDLE_SERVER_FLEET_EVENT_OPTIONS_H_

#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace heddle::server {

struct FleetOptions {
  std::function<absl::Time()> now = absl::Now;  // what is written down, and when jobs expire
  // Leases, sessions and waiting calls: the system's clock may jump.
  std::function<SteadyTime()> steady = SteadyNow;
  int max_searchers = 4;  // 0: another executor than the fleet runs the jobs
  int open_jobs_per_tenant = 1000;
  // Of a tenant: jobs that are searched at a time, and seconds of devices a day (UTC); 0 = no
  // limit. What exceeds them waits.
  int running_jobs_per_tenant = 0;
  double device_seconds_per_day = 0;
  // How long a job keeps its searcher while others wait for one.
  absl::Duration slice = absl::Seconds(60);
  // Jobs that wait for a model are held against its devices so often at most.
  absl::Duration match_every = absl::Seconds(1);
  // The host of the server itself, whose daemon comes over the server's socket: nobody else gets
  // the name, and its measurements are trusted. "" = none.
  std::string own_host;
  absl::Duration heartbeat = absl::Seconds(5);
  absl::Duration lease = absl::Seconds(30);
  // How long a request that is sent again is known as the same.
  absl::Duration remember_requests = absl::Hours(24 * 7);
  // How long jobs that have ended are kept, and devices that nobody has seen.
  absl::Duration keep_jobs = absl::Hours(24 * 90);
  // Of a tenant, so many that have ended: with each job that it creates beyond, up to two are
  // forgotten that ended an hour ago (kLateResults).
  int64_t ended_jobs_per_tenant = 10000;
  absl::Duration keep_devices = absl::Hours(24 * 30);
};

// Two workers lost with a candidate are enough.
inline constexpr int kMaxKills = 2;
// Candidates that a search proposes ahead for each device: a lease of some while another is
// measured.
inline constexpr int kInFlightPerDevice = 16;
// How long a lease lasts whose daemon is heard of and has not reported all of it: far more than a
// daemon, which gives a candidate some 65 seconds at most, ever takes, behind another one that it
// has.
inline constexpr absl::Duration kLongestLease = absl::Minutes(20);
inline constexpr absl::Duration kLongestCandidate = absl::Seconds(180);  // more, for each
// How long an expired lease is kept for results that come late, and a silent session.
inline constexpr absl::Duration kLateResults = absl::Hours(1);
// What a killed server forgets of the time that its searches and devices took.
inline constexpr absl::Duration kBookEvery = absl::Seconds(5);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_EVENT_OPTIONS_H_
