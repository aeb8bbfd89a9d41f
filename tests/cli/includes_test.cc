// Nothing points back: a folder includes headers of itself, of what it links, and of base.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/process.h"
#include "tests/support.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// What the folders' CMakeLists.txt say.
struct LinkGraph {
  std::map<std::string, std::string> target_of;        // of a folder, "search_space/ir"
  std::map<std::string, std::set<std::string>> links;  // of a target, to ours alone

  std::set<std::string> Reached(const std::string& target) const {
    std::set<std::string> reached;
    std::vector<std::string> next = {target};
    while (!next.empty()) {
      const std::string one = next.back();
      next.pop_back();
      if (!reached.insert(one).second) continue;
      const auto found = links.find(one);
      if (found != links.end()) next.insert(next.end(), found->second.begin(), found->second.end());
    }
    return reached;
  }
  // A folder without a target, such as that of the passes, is part of the one above it.
  std::string TargetOf(fs::path folder) const {
    for (; !folder.empty(); folder = folder.parent_path()) {
      const auto found = target_of.find(folder.string());
      if (found != target_of.end()) return found->second;
    }
    return "";
  }
};

const std::vector<std::string>& Floors() {
  static const auto& floors = *new std::vector<std::string>{
      "base", "search_space", "measure", "tuner", "server", "client", "daemon", "cli"};
  return floors;
}

LinkGraph ReadLinkGraph() {
  LinkGraph graph;
  static const std::regex kTarget(R"(heddle_(?:library|executable)\((\w+)([^)]*)\))");
  static const std::regex kOurs(R"(heddle_\w+)");
  for (const std::string& floor : Floors()) {
    for (const auto& entry : fs::recursive_directory_iterator(tests::SourceDir() + "/" + floor)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      const std::string text = tests::ReadAll(entry.path());
      std::smatch match;
      if (!std::regex_search(text, match, kTarget)) continue;
      const fs::path folder = fs::relative(entry.path().parent_path(), tests::SourceDir());
      const std::string target = match[1], dependencies = match[2];
      graph.target_of[folder.string()] = target;
      for (std::sregex_iterator it(dependencies.begin(), dependencies.end(), kOurs), end; it != end;
           ++it) {
        graph.links[target].insert(it->str());
      }
    }
  }
  graph.links["heddle_grpc"] = {"heddle_proto"};
  return graph;
}

// The target that a header belongs to; empty where it is none of ours.
std::string TargetOfHeader(const LinkGraph& graph, const std::string& header) {
  if (absl::EndsWith(header, ".grpc.pb.h")) return "heddle_grpc";
  if (absl::EndsWith(header, ".pb.h")) return "heddle_proto";
  return graph.TargetOf(fs::path(header).parent_path());
}

TEST(Includes, GoWhereTheLinksGo) {
  const LinkGraph graph = ReadLinkGraph();
  EXPECT_GT(graph.target_of.size(), 20);
  int seen = 0;
  for (const std::string& floor : Floors()) {
    for (const auto& entry : fs::recursive_directory_iterator(tests::SourceDir() + "/" + floor)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      const fs::path file = fs::relative(entry.path(), tests::SourceDir());
      const std::string target = graph.TargetOf(file.parent_path());
      const std::set<std::string> reached = graph.Reached(target);
      std::ifstream lines(entry.path());
      for (std::string line; std::getline(lines, line);) {
        absl::string_view header = line;
        if (!absl::ConsumePrefix(&header, "#include \"")) continue;
        header = header.substr(0, header.find('"'));
        const std::string of = TargetOfHeader(graph, std::string(header));
        if (of.empty()) continue;
        ++seen;
        EXPECT_TRUE(of == "heddle_base" || reached.contains(of))
            << file.string() << " includes " << header << ", but " << target << " does not link "
            << of;
      }
    }
  }
  EXPECT_GT(seen, 1000);
}

}  // namespace
}  // namespace heddle
