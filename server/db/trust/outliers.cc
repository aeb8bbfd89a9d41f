#include "server/db/trust/outliers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/math.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "server/db/trust/confirmations.h"

namespace heddle::server {
namespace {

struct LastWord {
  double time_us = 0, low_us = 0, high_us = 0;
  absl::Time when;
};
using Words = std::map<std::string, LastWord>;  // of a schedule, by host

struct Found {
  Outlier outlier;
  std::set<std::string> others;
  std::vector<double> ratios;
};

bool Differ(const LastWord& a, const LastWord& b) {
  const bool apart = a.high_us < b.low_us || b.high_us < a.low_us;
  return apart && !Agree(Measured{a.time_us, 0}, Measured{b.time_us, 0});
}

void Compare(const Words& words, std::map<std::string, Found>& hosts) {
  if (words.size() < 2) return;
  for (const auto& [host, word] : words) {
    Found& found = hosts[host];
    ++found.outlier.compared;
    std::vector<std::string> against;
    std::vector<double> times;
    for (const auto& [other, theirs] : words) {
      if (other == host) continue;
      times.push_back(theirs.time_us);
      if (Differ(word, theirs)) against.push_back(other);
    }
    if (2 * against.size() < words.size()) continue;
    Outlier& outlier = found.outlier;
    outlier.first = outlier.contradicted == 0 ? word.when : std::min(outlier.first, word.when);
    outlier.last = outlier.contradicted == 0 ? word.when : std::max(outlier.last, word.when);
    ++outlier.contradicted;
    found.others.insert(against.begin(), against.end());
    found.ratios.push_back(word.time_us / UpperMedian(std::move(times)));
  }
}

}  // namespace

absl::StatusOr<std::vector<Outlier>> FindOutliers(tuner::Records& records) {
  std::map<std::string, Found> hosts;
  // The index of what speaks brings schedules one after another.
  Cursor row = records.database().Query(
      "SELECT t.workload, t.bench, t.steps, coalesce(o.host, f.host), t.time_us, t.ci_low_us, "
      "t.ci_high_us, t.when_us FROM trial t LEFT JOIN final_origin o ON o.trial = t.id "
      "LEFT JOIN source f ON f.id = t.source "
      "WHERE t.speaks = 1 AND t.final = 1 AND t.outcome = 'OK' "
      "AND t.screened_out = 0 AND coalesce(o.host, f.host, '') <> '' "
      "ORDER BY t.workload, t.bench, t.steps, t.id");
  std::tuple<int64_t, int64_t, int64_t> last;
  Words words;
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    const std::tuple schedule = {row.Int(0), row.Int(1), row.Int(2)};
    if (schedule != last) {
      Compare(words, hosts);
      words.clear();
      last = schedule;
    }
    words[row.Text(3)] = {row.Real(4), row.Real(5), row.Real(6), absl::FromUnixMicros(row.Int(7))};
  }));
  Compare(words, hosts);
  std::vector<Outlier> outliers;
  for (auto& [host, found] : hosts) {
    if (found.outlier.contradicted == 0) continue;
    found.outlier.host = host;
    found.outlier.others = static_cast<int64_t>(found.others.size());
    found.outlier.ratio = UpperMedian(std::move(found.ratios));
    outliers.push_back(std::move(found.outlier));
  }
  std::stable_sort(outliers.begin(), outliers.end(), [](const Outlier& a, const Outlier& b) {
    return a.contradicted > b.contradicted;
  });
  return outliers;
}

}  // namespace heddle::server
