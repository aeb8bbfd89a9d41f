#include "server/fleet/jobs/candidates.h"

#include <algorithm>
#include <utility>

namespace heddle::server {

bool Candidates::Finals::Have(int64_t id) const {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void Candidates::Recover(TrialRow row) {
  if (row.state != v1::Trial::STATE_LEASED) queue_.push_back(row.id);
  const int64_t id = row.id;
  candidates_[id].row = std::move(row);
}

std::vector<std::string> Candidates::Begin(int workload) {
  workload_ = workload;
  std::erase_if(candidates_, [&](const auto& entry) {
    const TrialRow& row = entry.second.row;
    return row.state != v1::Trial::STATE_LEASED && (row.workload != workload || row.is_final);
  });
  std::erase_if(queue_, [&](int64_t trial) { return !candidates_.contains(trial); });
  finals_.reset();
  results_.clear();
  unclaimed_.clear();
  outstanding_.clear();
  std::vector<std::string> points;
  for (auto& [trial, candidate] : candidates_) {
    candidate.number = -1;
    if (candidate.row.workload != workload || candidate.row.is_final) continue;
    points.push_back(candidate.row.point);
    outstanding_.emplace(candidate.row.point, trial);
  }
  return points;
}

void Candidates::Close() {
  closed_ = true;
  queue_.clear();
}

// --------------------------------------------------------------------------------- the searcher's

void Candidates::AskFinals(double budget_s, bool any) {
  finals_.emplace();
  finals_->budget_s = budget_s;
  finals_->queued = any;
}

void Candidates::Propose(const searcher::Proposal& proposal, TrialRow row, int64_t& next_trial) {
  if (!row.is_final) {
    auto early = unclaimed_.extract(proposal.point());
    if (!early.empty()) {
      searcher::Result& result = results_.emplace_back();
      result.set_number(proposal.number());
      *result.mutable_result() = std::move(early.mapped());
      return;
    }
    const auto known = outstanding_.extract(proposal.point());
    const auto candidate = known.empty() ? candidates_.end() : candidates_.find(known.mapped());
    if (candidate != candidates_.end()) {
      candidate->second.number = proposal.number();
      return;
    }
  }
  row.id = next_trial++;
  row.point = proposal.point();
  row.steps = proposal.steps();
  if (row.is_final) {
    finals_->ids.push_back(row.id);
  } else {
    queue_.push_back(row.id);
  }
  const int64_t id = row.id;
  candidates_[id] = {std::move(row), proposal.number()};
}

bool Candidates::AnswerIsReady(bool finals) const {
  if (!finals) return !results_.empty();
  return finals_ && finals_->results.size() == finals_->ids.size();
}

std::vector<searcher::Result> Candidates::TakeAnswer(bool finals) {
  if (!finals) return std::exchange(results_, {});
  std::vector<searcher::Result> answer;
  for (int64_t trial : finals_->ids) {
    *answer.emplace_back().mutable_result() = finals_->results[trial];
  }
  finals_.reset();
  return answer;
}

// ------------------------------------------------------------------------------------- the
// devices'

std::vector<int64_t> Candidates::WaitingFinals() const {
  std::vector<int64_t> waiting;
  for (int64_t id : finals_->ids) {
    const auto candidate = candidates_.find(id);
    if (candidate == candidates_.end()) continue;
    if (candidate->second.row.state == v1::Trial::STATE_PROPOSED) waiting.push_back(id);
  }
  return waiting;
}

std::vector<TrialRow*> Candidates::TakeFinals() {
  finals_->queued = false;
  std::vector<TrialRow*> rows;
  for (int64_t id : WaitingFinals()) rows.push_back(&candidates_.at(id).row);
  return rows;
}

std::vector<TrialRow*> Candidates::Take(int count) {
  std::vector<TrialRow*> rows;
  while (static_cast<int>(rows.size()) < count && !queue_.empty()) {
    rows.push_back(&candidates_.at(queue_.front()).row);
    queue_.pop_front();
  }
  return rows;
}

void Candidates::PutBack(int64_t id, std::optional<int> kills) {
  const auto candidate = candidates_.find(id);
  if (candidate == candidates_.end()) return;
  TrialRow& row = candidate->second.row;
  if (kills) row.kills = *kills;
  row.state = v1::Trial::STATE_PROPOSED;
  if (!row.is_final) {
    if (!closed_) queue_.push_front(id);
  } else if (finals_ && finals_->Have(id)) {  // those of an earlier search nobody waits for
    finals_->queued = true;
  }
}

std::optional<TrialRow> Candidates::TakeResult(int64_t id, const v1::TrialResult& result) {
  auto taken = candidates_.extract(id);
  if (taken.empty()) return std::nullopt;
  Candidate& candidate = taken.mapped();
  // A result that came after its lease had ended: it needs no other device.
  if (candidate.row.state == v1::Trial::STATE_PROPOSED) std::erase(queue_, id);
  if (candidate.row.workload != workload_) return std::move(candidate.row);
  if (candidate.row.is_final) {
    if (finals_ && finals_->Have(id)) {
      finals_->results[id] = result;
      finals_->queued &= !WaitingFinals().empty();
    }
  } else if (candidate.number >= 0) {
    searcher::Result& answer = results_.emplace_back();
    answer.set_number(candidate.number);
    *answer.mutable_result() = result;
  } else {
    unclaimed_[candidate.row.point] = result;
  }
  return std::move(candidate.row);
}

}  // namespace heddle::server
