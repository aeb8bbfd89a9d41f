// What the searcher of a job has asked for, and what has become of it.
#ifndef HEDDLE_SERVER_FLEET_JOBS_CANDIDATES_H_
#define HEDDLE_SERVER_FLEET_JOBS_CANDIDATES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/v1/fleet.pb.h"
#include "proto/searcher.pb.h"
#include "server/db/trial_store.h"

namespace heddle::server {

// Candidates of a job that have no result: they wait for a device, in the order of their proposals,
// or are leased to one. Finals are measured together, beside each other on one device. A searcher
// that ends leaves what is leased or waits to the next one of its workload.
class Candidates {
 public:
  // What the database has of the job.
  void Recover(TrialRow row);
  // A search of the workload begins. Nobody waits for what others have left, and for finals. The
  // points that earlier searches have proposed and that have no result yet.
  std::vector<std::string> Begin(int workload);
  // Nothing is given to devices any more.
  void Close();

  // The searcher wants one measured. `row`: the job and the workload; its id is `next_trial`, which
  // is then another one, unless the candidate is known.
  void Propose(const searcher::Proposal& proposal, TrialRow row, int64_t& next_trial);
  // The finals that the searcher proposes from now on, and the time for all of them.
  void AskFinals(double budget_s, bool any);
  // What the searcher gets is ready: some results; of finals, all.
  bool AnswerIsReady(bool finals) const;
  // Those that it has not had.
  std::vector<searcher::Result> TakeAnswer(bool finals);

  // What a device can be given.
  bool AnyWait() const { return !queue_.empty() || FinalsWait(); }
  bool FinalsWait() const { return finals_ && finals_->queued; }
  bool FinalsAsked() const { return finals_.has_value(); }
  size_t waiting() const { return queue_.size(); }
  double finals_budget_s() const { return finals_->budget_s; }
  // For a device, which is then written into their rows: all finals that wait, or so many others.
  std::vector<TrialRow*> TakeFinals();
  std::vector<TrialRow*> Take(int count);
  // A device has it no longer, and it waits for another one unless nobody asks for it. `kills`:
  // workers that were lost with it.
  void PutBack(int64_t id, std::optional<int> kills);
  // Its result, which is the searcher's where the candidate is of the workload that is searched;
  // nullopt: it was not awaited.
  std::optional<TrialRow> TakeResult(int64_t id, const v1::TrialResult& result);

 private:
  struct Candidate {
    TrialRow row;
    int64_t number = -1;  // the searcher's; -1: no searcher asks for it
  };
  struct Finals {
    Finals() {}  // clang: an optional<> in this class cannot see the initialisers below
    std::vector<int64_t> ids;  // in the searcher's order
    std::map<int64_t, v1::TrialResult> results;
    double budget_s = 0;
    bool queued = false;

    bool Have(int64_t id) const;
  };
  // Of the finals those that no device has and that have no result.
  std::vector<int64_t> WaitingFinals() const;

  int workload_ = 0;  // that is searched
  bool closed_ = false;
  std::map<int64_t, Candidate> candidates_;
  std::deque<int64_t> queue_;  // of them, waiting for a device
  // Of them, by point: proposed by an earlier searcher, not asked for by this one yet.
  std::map<std::string, int64_t> outstanding_;
  std::optional<Finals> finals_;
  std::vector<searcher::Result> results_;             // for the searcher
  std::map<std::string, v1::TrialResult> unclaimed_;  // by point: nobody asked for them yet
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_CANDIDATES_H_
