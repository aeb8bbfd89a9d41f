// The search of one workload of a job: tuner::Session, the same as offline, whose measurer is the
// fleet. The server starts a process for each (a search takes a core and should not take the server
// along), but searching needs nothing more than a port to ask through.
#ifndef HEDDLE_SERVER_ENGINE_SEARCHER_H_
#define HEDDLE_SERVER_ENGINE_SEARCHER_H_

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/searcher.pb.h"

namespace heddle::server {

// Answers a searcher's question; blocks for as long as the question allows.
using SearchPort = std::function<searcher::ToSearcher(const searcher::FromSearcher&)>;

// Searches to the end of a budget, or until an answer says stop (then Done says "interrupted").
// Results are the server's to record, so that they are durable before their daemon forgets them;
// the search only reads the database. Errors of the search are in Done.
searcher::Done Search(const searcher::Setup& setup, const SearchPort& port);

// The same in a child process. Unavailable when the child ends without saying why.
absl::StatusOr<searcher::Done> SearchInChild(const searcher::Setup& setup, const SearchPort& port);

// To be called first in main(): runs the server's children when the arguments are theirs, else
// returns nullopt.
//   heddle __searcher SUPERVISOR_PID
//   heddle __space SUPERVISOR_PID BYTES     (spaces.h)
std::optional<int> RunSearcherCommand(int argc, char** argv);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_SEARCHER_H_
