// What the subcommands that talk to a server share.
#ifndef HEDDLE_CLI_REMOTE_H_
#define HEDDLE_CLI_REMOTE_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "client/client.h"
#include "client/options.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"

namespace heddle::cli {

// A client whose calls end at Ctrl-C.
class RemoteServer {
 public:
  static absl::StatusOr<std::unique_ptr<RemoteServer>> Connect(
      const client::ConnectOptions& options);
  client::Client* operator->() { return client_.get(); }
  client::Client& operator*() { return *client_; }

 private:
  explicit RemoteServer(std::unique_ptr<client::Client> client);

  std::unique_ptr<client::Client> client_;
  std::jthread interrupter_;
};

struct ServerFlags {
  client::ConnectOptions options;
  // `required`: the command works with a server only. $HEDDLE_SERVER names it too, and without
  // either it is the one of this user's database.
  void Add(CLI::App& app, bool required);
  bool given() const { return !options.server.empty(); }
  client::ConnectOptions Get() const;
};

// An action of a command that needs a server: connects and runs.
Action WithServer(const ServerFlags& flags, const std::function<Result(client::Client&)>& run);

// Waits for the end of a job, with the progress bar of `tune`, and tells the result as `tune` does.
// `seconds`: DeadlineExceeded after so many; 0 = no limit.
Result FollowJob(client::Client& client, const std::string& id, bool json, double seconds);

// A job for people, in one line, and as JSON.
std::string Describe(const v1::Job& job);
Json ToJson(const v1::Job& job);

// Subcommands of `devices` for administrators of a server.
void AddFleet(CLI::App& devices, Selected selected);

// Every device of the server's fleet, page by page.
absl::StatusOr<std::vector<v1::FleetDevice>> AllDevices(client::Client& client);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_REMOTE_H_
