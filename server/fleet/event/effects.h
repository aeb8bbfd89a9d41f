// What an event leads to: what it asks of the world, and what it leaves for other parts of the
// fleet's state to see to before it is over.
#ifndef HEDDLE_SERVER_FLEET_EVENT_EFFECTS_H_
#define HEDDLE_SERVER_FLEET_EVENT_EFFECTS_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "heddle/v1/tuning.pb.h"
#include "server/db/store.h"

namespace heddle::server {

template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

// What events ask of the world. Writes go to the store in this order; the rest follows.
struct Effects {
  struct Write {
    Store::Body body;  // touches the database and what it was given only
    Store::Done done;  // an event: the commit's end
    Persistence persistence = Persistence::kOnce;
  };
  // An event of a job that is in the database, for those who watch it.
  struct Announcement {
    int64_t job = 0, seq = 0;
    bool with_job = false;  // as it is now
  };
  // A reply with the job as the database has it.
  struct JobReply {
    int64_t job = 0;
    std::string tenant;  // who asks, "" = an administrator
    Reply<v1::Job> reply;
  };
  std::vector<Write> writes;
  std::vector<std::function<void()>> replies;
  std::vector<Announcement> announcements;
  std::vector<JobReply> job_replies;
  std::vector<int64_t> searches;  // jobs that are to be searched now, until SearchEnded
};

// Where the parts of the state put what they ask for, in the order of the calls.
class Outbox {
 public:
  Effects Take() { return std::exchange(effects_, {}); }

  void Write(Store::Body body, Store::Done done, Persistence persistence) {
    effects_.writes.push_back({std::move(body), std::move(done), persistence});
  }
  template <typename T>
  void Send(Reply<T> reply, absl::StatusOr<T> value) {
    effects_.replies.push_back([reply = std::move(reply), value = std::move(value)]() mutable {
      reply(std::move(value));
    });
  }
  // An administrator's word: written, then believed and answered with what is so then. What comes
  // meanwhile goes by what was, and a write that fails has changed nothing.
  template <typename T>
  void WriteThenBelieve(Store::Body body, std::function<absl::StatusOr<T>()> believe,
                        const Reply<T>& reply) {
    Write(
        std::move(body),
        [=, this](const absl::Status& status) {
          Send<T>(reply, status.ok() ? believe() : absl::StatusOr<T>(status));
        },
        Persistence::kOnce);
  }
  void Announce(int64_t job, int64_t seq, bool with_job) {
    effects_.announcements.push_back({job, seq, with_job});
  }
  void SendJob(int64_t job, std::string tenant, Reply<v1::Job> reply) {
    effects_.job_replies.push_back({job, std::move(tenant), std::move(reply)});
  }
  void Search(int64_t job) { effects_.searches.push_back(job); }

 private:
  Effects effects_;
};

// What has changed and concerns parts that the one which changed it does not know: FleetState sees
// to it at the end of the event.
struct Changes {
  std::set<int64_t> waiting;      // jobs that are to wait for a searcher, or for a device
  std::set<int64_t> stopped;      // jobs that are cancelled or ending: their leases are revoked
  std::set<int64_t> came_back;    // jobs of which a lease or a search has ended
  std::set<std::string> to_give;  // models whose waiting devices there may be work for
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_EVENT_EFFECTS_H_
