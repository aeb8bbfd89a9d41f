#include "server/fleet/leases/confirmations.h"

#include <algorithm>
#include <utility>

namespace heddle::server {
namespace {

constexpr size_t kMaxWaiting = 1000;  // of a model

bool IsOf(const Confirmation& confirmation, const Workload& program, v1::L2Policy l2) {
  return confirmation.program->hash == program->hash && confirmation.l2 == l2;
}

}  // namespace

std::optional<Measured> Confirmation::MeasuredBy(const std::vector<Finalist>& finals) const {
  const std::string& schedule = rows.front().steps;
  Measured measured;
  bool any = false;
  for (const Finalist& final : finals) {
    const bool is_best = final.row.steps == schedule;
    any |= is_best;
    (is_best ? measured.time_us : measured.default_us) = final.time_us;
  }
  return any ? std::optional(measured) : std::nullopt;
}

void Confirmation::AddRow(TrialRow row) {
  row.lease = 0;
  row.kills = 0;
  row.running = false;
  rows.push_back(std::move(row));
}

void Confirmation::AddDefault(const TrialRow& row) {
  if (rows.size() == 1 && row.steps != rows.front().steps) AddRow(row);
}

void Confirmations::Ask(const std::string& model, Confirmation confirmation) {
  std::deque<Confirmation>& waiting = waiting_[model];
  const auto other = std::find_if(waiting.begin(), waiting.end(), [&](const Confirmation& c) {
    return IsOf(c, confirmation.program, confirmation.l2);
  });
  if (other != waiting.end()) {
    if (other->number > confirmation.number) return;
    waiting.erase(other);
  }
  waiting.push_back(std::move(confirmation));
  if (waiting.size() > kMaxWaiting) waiting.pop_front();
}

std::optional<Confirmation> Confirmations::Take(const std::string& model, const std::string& host,
                                                int64_t token) {
  const auto of_model = waiting_.find(model);
  if (of_model == waiting_.end()) return std::nullopt;
  std::deque<Confirmation>& waiting = of_model->second;
  const auto chosen = std::find_if(waiting.begin(), waiting.end(), [&](const Confirmation& c) {
    ++matches_;
    return std::all_of(c.measured.begin(), c.measured.end(), [&](const auto& measured) {
      return IsAnother(measured.first, measured.second, host, token);
    });
  });
  if (chosen == waiting.end()) return std::nullopt;
  Confirmation taken = std::move(*chosen);
  waiting.erase(chosen);
  return taken;
}

void Confirmations::AddDefault(const std::string& model, const Workload& program, v1::L2Policy l2,
                               const TrialRow& row) {
  for (Confirmation& waiting : waiting_[model]) {
    if (IsOf(waiting, program, l2)) waiting.AddDefault(row);
  }
}

bool Confirmations::AnyWait(const std::string& model) const {
  const auto waiting = waiting_.find(model);
  return waiting != waiting_.end() && !waiting->second.empty();
}

}  // namespace heddle::server
