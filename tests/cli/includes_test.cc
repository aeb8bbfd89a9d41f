// Nothing points back: a folder includes headers of itself, of what it links, and of base, and from
// no unit (a header and its source) do includes lead back to it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "tests/process.h"
#include "tests/support.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

using Arrows = std::map<std::string, std::set<std::string>>;

std::set<std::string> Reached(const Arrows& arrows, const std::string& from) {
  std::set<std::string> reached;
  std::vector<std::string> next = {from};
  while (!next.empty()) {
    const std::string one = next.back();
    next.pop_back();
    if (!reached.insert(one).second) continue;
    const auto found = arrows.find(one);
    if (found != arrows.end()) next.insert(next.end(), found->second.begin(), found->second.end());
  }
  return reached;
}

// What the folders' CMakeLists.txt say.
struct LinkGraph {
  std::map<std::string, std::string> target_of;  // of a folder, "search_space/ir"
  Arrows links;                                  // of a target, to ours alone

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
  static const auto& floors =
      *new std::vector<std::string>{"proto",  "base",   "search_space", "measure", "tuner",
                                    "server", "client", "daemon",       "cli",     "bench"};
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
  // Made by functions of CMake's own.
  graph.target_of["proto"] = "heddle_proto";
  graph.links["heddle_grpc"] = {"heddle_proto"};
  graph.target_of["bench"] = "each program of bench";
  graph.links["each program of bench"] = {"heddle_search"};
  return graph;
}

// The target that a header belongs to; empty where it is none of ours.
std::string TargetOfHeader(const LinkGraph& graph, const std::string& header) {
  if (absl::EndsWith(header, ".grpc.pb.h")) return "heddle_grpc";
  if (absl::EndsWith(header, ".pb.h")) return "heddle_proto";
  return graph.TargetOf(fs::path(header).parent_path());
}

// Every include in quotes.
void VisitIncludes(absl::FunctionRef<void(const fs::path& file, const std::string& header)> visit) {
  for (const std::string& floor : Floors()) {
    for (const auto& entry : fs::recursive_directory_iterator(tests::SourceDir() + "/" + floor)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      const fs::path file = fs::relative(entry.path(), tests::SourceDir());
      std::ifstream lines(entry.path());
      for (std::string line; std::getline(lines, line);) {
        absl::string_view header = line;
        if (!absl::ConsumePrefix(&header, "#include \"")) continue;
        visit(file, std::string(header.substr(0, header.find('"'))));
      }
    }
  }
}

TEST(Includes, GoWhereTheLinksGo) {
  const LinkGraph graph = ReadLinkGraph();
  EXPECT_GT(graph.target_of.size(), 20);
  int seen = 0;
  VisitIncludes([&](const fs::path& file, const std::string& header) {
    const std::string of = TargetOfHeader(graph, header);
    if (of.empty()) return;
    ++seen;
    const std::string target = graph.TargetOf(file.parent_path());
    EXPECT_TRUE(of == "heddle_base" || Reached(graph.links, target).contains(of))
        << file.string() << " includes " << header << ", but " << target << " does not link " << of;
  });
  EXPECT_GT(seen, 1000);
}

TEST(Includes, LeadBackToNoUnit) {
  const auto unit_of = [](fs::path file) { return file.replace_extension().string(); };
  Arrows includes;
  VisitIncludes([&](const fs::path& file, const std::string& header) {
    if (unit_of(header) != unit_of(file)) includes[unit_of(file)].insert(unit_of(header));
  });
  EXPECT_GT(includes.size(), 300);
  std::map<std::string, std::set<std::string>> reached;
  for (const auto& [unit, others] : includes) reached[unit] = Reached(includes, unit);
  for (const auto& [unit, others] : includes) {
    for (const std::string& other : others) {
      EXPECT_FALSE(reached[other].contains(unit))
          << unit << " includes " << other << ", from which includes lead back to it";
    }
  }
}

// clang-tidy looks into the headers that its configuration names.
TEST(Includes, AreOfHeadersThatAreLinted) {
  const std::string configuration = tests::ReadAll(tests::SourceDir() + "/.clang-tidy");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(configuration, match, std::regex("HeaderFilterRegex: '([^']+)'")));
  const std::regex linted(match[1].str(), std::regex::extended);
  std::vector<std::string> folders = Floors();
  folders.push_back("tests");
  int seen = 0;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(tests::SourceDir() + "/" + folder)) {
      if (entry.path().extension() != ".h") continue;
      ++seen;
      EXPECT_TRUE(std::regex_search(entry.path().string(), linted)) << entry.path();
    }
  }
  EXPECT_GT(seen, 300);
  // Of others that folders have such names.
  for (const char* header :
       {"/build/dev/proto/worker.pb.h", "/build/dev/proto/heddle/v1/tuning.pb.h",
        "/usr/include/absl/base/config.h"}) {
    EXPECT_FALSE(std::regex_search(std::string(header), linted)) << header;
  }
}

}  // namespace
}  // namespace heddle
