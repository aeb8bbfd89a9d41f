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
  Model& own = models_[model];
  const auto other = std::find_if(own.waiting.begin(), own.waiting.end(), [&](const Waiting& w) {
    return IsOf(w.confirmation, confirmation.program, confirmation.l2);
  });
  if (other != own.waiting.end()) {
    if (other->confirmation.number > confirmation.number) return;
    own.waiting.erase(other);
  }
  own.waiting.push_back({std::move(confirmation), own.next_place++});
  if (own.waiting.size() > kMaxWaiting) own.waiting.pop_front();
}

std::optional<Confirmation> Confirmations::Take(const std::string& model, const std::string& host,
                                                int64_t token) {
  const auto of_model = models_.find(model);
  if (of_model == models_.end() || of_model->second.waiting.empty()) return std::nullopt;
  auto& [waiting, looked_at, next_place] = of_model->second;
  int64_t& begin = looked_at[{host, token}];
  const auto first =
      std::lower_bound(waiting.begin(), waiting.end(), begin,
                       [](const Waiting& w, int64_t place) { return w.place < place; });
  const auto chosen = std::find_if(first, waiting.end(), [&](const Waiting& w) {
    ++matches_;
    return std::all_of(w.confirmation.measured.begin(), w.confirmation.measured.end(),
                       [&](const auto& measured) {
                         return IsAnother(measured.first, measured.second, host, token);
                       });
  });
  begin = chosen == waiting.end() ? next_place : chosen->place;
  if (chosen == waiting.end()) return std::nullopt;
  Confirmation taken = std::move(chosen->confirmation);
  waiting.erase(chosen);
  if (waiting.empty()) looked_at.clear();
  return taken;
}

void Confirmations::AddDefault(const std::string& model, const Workload& program, v1::L2Policy l2,
                               const TrialRow& row) {
  for (Waiting& waiting : models_[model].waiting) {
    if (IsOf(waiting.confirmation, program, l2)) waiting.confirmation.AddDefault(row);
  }
}

bool Confirmations::AnyWait(const std::string& model) const {
  const auto of_model = models_.find(model);
  return of_model != models_.end() && !of_model->second.waiting.empty();
}

}  // namespace heddle::server
