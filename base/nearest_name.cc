#include "base/nearest_name.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle {
namespace {

constexpr size_t kLongestCompared = 64;  // names beyond it are not typing errors of ours
constexpr size_t kMostSuggested = 3;
constexpr size_t kMostListed = 24;

bool SameLetter(char a, char b) { return absl::ascii_tolower(a) == absl::ascii_tolower(b); }

// Letters inserted, removed, replaced and neighbours swapped; case ignored.
int EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = static_cast<int>(i + j);
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (SameLetter(a[i - 1], b[j - 1]) ? 0 : 1)});
      if (i > 1 && j > 1 && SameLetter(a[i - 1], b[j - 2]) && SameLetter(a[i - 2], b[j - 1])) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

bool IsPartOf(const std::string& part, const std::string& whole) {
  return part.size() >= 3 && whole.find(part) != std::string::npos;
}

}  // namespace

std::string Suggest(const std::string& name, const std::vector<std::string>& candidates) {
  if (candidates.empty()) return "";
  std::set<std::pair<int, std::string>> near;
  if (name.size() <= kLongestCompared) {
    const int farthest = std::max<int>(1, static_cast<int>(name.size()) / 3);
    for (const std::string& candidate : candidates) {
      const int distance = EditDistance(name, candidate);
      if (distance <= farthest) {
        near.insert({distance, candidate});
      } else if (IsPartOf(name, candidate) || IsPartOf(candidate, name)) {
        near.insert({farthest + 1, candidate});
      }
    }
  }
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : near) {
    if (names.size() < kMostSuggested) names.push_back(absl::StrCat("'", candidate, "'"));
  }
  if (!names.empty()) return absl::StrCat("; did you mean ", absl::StrJoin(names, " or "), "?");
  names.assign(candidates.begin(), candidates.begin() + std::min(candidates.size(), kMostListed));
  return absl::StrCat("; known: ", absl::StrJoin(names, ", "),
                      candidates.size() > kMostListed ? ", ..." : "");
}

}  // namespace heddle
