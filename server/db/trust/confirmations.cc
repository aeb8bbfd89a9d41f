#include "server/db/trust/confirmations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/records_fields.h"

namespace heddle::server {
namespace {

using tuner::Records;

// Finals of which is asked whether anybody else speaks of their schedules, those looked at for one
// that is validated, and words on each.
constexpr int kScanned = 512, kFastest = 32, kNewest = 64;

struct Word {
  int64_t trial = 0;
  FinalOrigin origin;
  bool is_owners = false;  // of this database, not the fleet's
  Measured measured;
};

// The words on the same schedule, newest first: the fleet's, and what this database's owner has
// measured or collected on hosts of his own. On all benches of the device's name with as many
// units: times that do not compare do not agree, and what is wrong is wrong on any.
absl::StatusOr<std::vector<Word>> WordsOn(Records& records, int64_t trial) {
  std::vector<Word> words;
  Cursor row = records.database().Query(
      "SELECT t.id, coalesce(o.host, f.host), coalesce(o.token, f.token), iif(t.outcome = 'OK' AND "
      "t.screened_out = 0, t.time_us, 0.0), "
      "coalesce((SELECT d.time_us FROM final_origin b "
      "JOIN trial d ON d.id = b.trial WHERE b.lease = o.lease AND b.is_default = 1 "
      "AND d.outcome = 'OK'), 0.0), o.trial IS NULL "
      "FROM trial s JOIN bench a ON a.id = s.bench "
      "JOIN bench b ON b.device_name = a.device_name AND b.l2 = a.l2 "
      "AND (b.sm_count = a.sm_count OR b.sm_count = 0 OR a.sm_count = 0) "
      "JOIN trial t ON t.workload = s.workload AND t.bench = b.id "
      "AND t.steps = s.steps LEFT JOIN final_origin o ON o.trial = t.id "
      "LEFT JOIN source f ON f.id = t.source "
      "WHERE s.id = ? AND t.speaks = 1 "
      "ORDER BY t.id DESC LIMIT ?",
      trial, int64_t{kNewest});
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    Word& word = words.emplace_back();
    word.trial = row.Int(0);
    word.origin.host = row.Text(1);
    word.origin.token = row.Int(2);
    word.measured = {row.Real(3), row.Real(4)};
    word.is_owners = row.Int(5) != 0;
  }));
  return words;
}

// Whose it is; nullopt: not the fleet's.
absl::StatusOr<std::optional<std::string>> HostOf(Records& records, int64_t trial) {
  Cursor row = records.database().Query("SELECT host FROM final_origin WHERE trial = ?", trial);
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return std::optional<std::string>();
  return std::optional<std::string>(row.Text(0));
}

// Of these trials, fastest first, those that may turn out to be validated: the owner's, a trusted
// host's, and those on whose schedule another one has a word, too (IsAnother). So the claims of
// one, which nobody has measured again, hide nothing as long as they are fewer than kScanned.
absl::StatusOr<std::vector<int64_t>> NotOnlyClaimed(
    Records& records, const std::vector<int64_t>& trials,
    const std::function<bool(const std::string&)>& trusts) {
  std::vector<int64_t> found;
  for (const int64_t trial : trials) {
    if (found.size() == kFastest) break;
    Cursor row = records.database().Query(
        "SELECT o.host, EXISTS (SELECT 1 FROM bench a JOIN bench b "
        "ON b.device_name = a.device_name AND b.l2 = a.l2 "
        "CROSS JOIN trial n INDEXED BY trial_word_steps ON n.speaks = 1 "
        "AND n.workload = t.workload AND n.bench = b.id AND n.steps = t.steps "
        "LEFT JOIN final_origin p ON p.trial = n.id LEFT JOIN source f ON f.id = n.source "
        "WHERE a.id = t.bench AND coalesce(p.host, f.host, '') <> o.host "
        "AND (coalesce(p.token, f.token, 0) = 0 OR coalesce(p.token, f.token) <> o.token)) "
        "FROM trial t LEFT JOIN final_origin o ON o.trial = t.id WHERE t.id = ?",
        trial);
    HEDDLE_ASSIGN_OR_RETURN(is_there, row.Next());
    if (is_there && (row.IsNull(0) || row.Int(1) != 0 || trusts(row.Text(0)))) {
      found.push_back(trial);
    }
  }
  return found;
}

// Of each party the newest word counts; one that has found the schedule to be wrong silences all.
int CountAgreeing(const std::vector<Word>& words, int64_t trial) {
  std::vector<const Word*> newest;
  const Word* own = nullptr;
  for (const Word& word : words) {
    if (word.origin.host.empty()) continue;
    const bool another = std::all_of(newest.begin(), newest.end(), [&](const Word* other) {
      return IsAnother(other->origin.host, other->origin.token, word.origin.host,
                       word.origin.token);
    });
    if (!another) continue;
    if (!(word.measured.time_us > 0)) return 0;
    newest.push_back(&word);
    if (word.trial == trial) own = &word;
  }
  if (own == nullptr) return 0;
  return static_cast<int>(std::count_if(newest.begin(), newest.end(), [&](const Word* word) {
    return word != own && Agree(own->measured, word->measured);
  }));
}

// Of these trials, the newest finals of their schedules, and of older finals of these: those that
// may be believed, the newest by themselves, older ones where others agree. Fastest first.
absl::StatusOr<std::vector<int64_t>> Believable(
    Records& records, const std::vector<int64_t>& schedules,
    const std::function<bool(const std::string&)>& trusts) {
  std::vector<std::pair<double, int64_t>> finals;  // time, trial
  for (const int64_t newest : schedules) {
    HEDDLE_ASSIGN_OR_RETURN(words, WordsOn(records, newest));
    for (const Word& word : words) {
      // Where it was found wrong nothing that was said before counts.
      if (!(word.measured.time_us > 0)) break;
      const bool believed = word.trial == newest && (word.is_owners || trusts(word.origin.host));
      if (believed || CountAgreeing(words, word.trial) > 0) {
        finals.emplace_back(word.measured.time_us, word.trial);
      }
    }
  }
  std::sort(finals.begin(), finals.end());
  std::vector<int64_t> trials;
  for (const auto& final : finals) trials.push_back(final.second);
  return trials;
}

absl::StatusOr<Served> Judge(Records& records, Records::Best best, bool known,
                             const std::function<bool(const std::string&)>& trusts) {
  Served served;
  const int64_t trial = best.trial.id;
  served.best = std::move(best);
  HEDDLE_ASSIGN_OR_RETURN(host, HostOf(records, trial));
  HEDDLE_ASSIGN_OR_RETURN(words, WordsOn(records, trial));
  served.confirmations = CountAgreeing(words, trial);
  const bool believed = !host.has_value() || trusts(*host) || served.confirmations > 0;
  served.validated = known && believed;
  return served;
}

}  // namespace

bool IsAnother(const std::string& host, int64_t token, const std::string& other_host,
               int64_t other_token) {
  return host != other_host && (token == 0 || token != other_token);
}

bool Agree(const Measured& a, const Measured& b) {
  const auto close = [](double x, double y) {
    return std::abs(x - y) <= kAgreement * std::min(x, y);
  };
  if (!(a.time_us > 0) || !(b.time_us > 0) || !close(a.time_us, b.time_us)) return false;
  // Whoever scales all times alike would pass this one, and whoever guesses one time that one.
  if (!(a.default_us > 0) || !(b.default_us > 0)) return true;
  return close(a.time_us / a.default_us, b.time_us / b.default_us);
}

absl::Status AddOrigin(Records& records, int64_t trial, const FinalOrigin& origin) {
  return records.database().Run("INSERT OR REPLACE INTO final_origin VALUES (?, ?, ?, ?, ?)", trial,
                                origin.host, origin.token, origin.lease, int{origin.is_default});
}

absl::StatusOr<std::optional<Served>> FindServed(
    Records& records, const search_space::TensorProgram& program, const tuner::Bench& bench,
    bool known, const std::function<bool(const std::string&)>& trusts) {
  HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(program.hash, bench));
  if (!best.has_value()) return std::optional<Served>();
  HEDDLE_ASSIGN_OR_RETURN(served, Judge(records, *std::move(best), known, trusts));
  if (served.validated || !known) return std::optional<Served>(std::move(served));
  // It is one host's claim: what is known to be right is better, if slower.
  HEDDLE_ASSIGN_OR_RETURN(fastest, records.FastestServed(program.hash, bench, kScanned));
  HEDDLE_ASSIGN_OR_RETURN(schedules, NotOnlyClaimed(records, fastest, trusts));
  HEDDLE_ASSIGN_OR_RETURN(candidates, Believable(records, schedules, trusts));
  for (const int64_t trial : candidates) {
    HEDDLE_ASSIGN_OR_RETURN(superseded, records.IsSuperseded(trial, /*by_failures=*/true));
    if (superseded) continue;
    int64_t after = trial - 1;
    HEDDLE_ASSIGN_OR_RETURN(page, records.ReadPage(after, 1));
    if (page.empty() || page.front().trial.id != trial) continue;  // damaged
    HEDDLE_ASSIGN_OR_RETURN(
        other, Judge(records, {page.front().trial, page.front().environment}, known, trusts));
    if (other.validated) return std::optional<Served>(std::move(other));
  }
  return std::optional<Served>(std::move(served));
}

}  // namespace heddle::server
