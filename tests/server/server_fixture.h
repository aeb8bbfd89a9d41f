// A server as callers see it: over gRPC, on a Unix socket unless told otherwise; searches run in
// the test's process.
#ifndef HEDDLE_TESTS_SERVER_SERVER_FIXTURE_H_
#define HEDDLE_TESTS_SERVER_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heddle/v1/fleet.grpc.pb.h"
#include "heddle/v1/records.grpc.pb.h"
#include "heddle/v1/tuning.grpc.pb.h"
#include "proto/values.h"
#include "server/api/server.h"
#include "tests/server/engine_support.h"

namespace heddle::server {

// A certificate of the authority in `folder`, which is made as docs/service.md says where there is
// none yet: NAME.pem and NAME.key, for `name` and 127.0.0.1.
inline bool MakeCertificate(const std::string& folder, const std::string& name) {
  const std::string script = absl::StrCat(
      "cd ", folder, " && n=", name,
      " && { test -e ca.pem || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
      "-nodes -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem 2>/dev/null; }"
      " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$n "
      "-keyout $n.key -out $n.csr 2>/dev/null"
      " && printf \"subjectAltName=DNS:$n,DNS:localhost,IP:127.0.0.1\" > $n.ext"
      " && openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile $n.ext -out $n.pem 2>/dev/null");
  return system(script.c_str()) == 0;
}

class ServerTest : public testing::Test {
 protected:
  ServerTest() {
    options_.db = folder_ / "heddle.db";
    options_.listen = {"unix:" + (folder_ / "s.sock")};
    options_.build = "test";
    options_.store.readers = 2;
    options_.engine.search = [](const searcher::Setup& setup, const SearchPort& port) {
      return absl::StatusOr<searcher::Done>(Search(setup, port));
    };
  }
  void Start() {
    server_.reset();
    auto server = Server::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ =
        grpc::CreateChannel(server_->addresses().back(),
                            credentials_ ? credentials_ : grpc::InsecureChannelCredentials());
    tuning_ = v1::Tuning::NewStub(channel_);
    fleet_ = v1::Fleet::NewStub(channel_);
    records_ = v1::Records::NewStub(channel_);
  }
  // To serve on a port, over mutual TLS. Those of `names` have certificates; the test calls as the
  // first. False: there is no openssl.
  bool UseTls(const std::vector<std::string>& names) {
    if (!MakeCertificate(folder_.path(), "server")) return false;
    for (const std::string& name : names) {
      if (!MakeCertificate(folder_.path(), name)) return false;
    }
    options_.listen = {"127.0.0.1:0"};  // a bare system knows no localhost
    options_.tls_cert = folder_ / "server.pem";
    options_.tls_key = folder_ / "server.key";
    options_.client_ca = folder_ / "ca.pem";
    credentials_ = CredentialsOf(names.front());
    return true;
  }
  std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const std::string& name) {
    return grpc::SslCredentials({tests::ReadAll(folder_ / "ca.pem"),
                                 tests::ReadAll(folder_ / (name + ".key")),
                                 tests::ReadAll(folder_ / (name + ".pem"))});
  }
  std::shared_ptr<grpc::Channel> ChannelAs(const std::string& name) {
    return grpc::CreateChannel(server_->addresses().back(), CredentialsOf(name));
  }
  std::string Token(const std::string& tenant, Role role) {
    return Token({.tenant = tenant, .role = role});
  }
  std::string Token(const TokenInfo& info) {
    auto records = tuner::Records::Open(options_.db);
    EXPECT_TRUE(records.ok()) << records.status();
    auto token = CreateToken(**records, info, absl::Now());
    EXPECT_TRUE(token.ok()) << token.status();
    return *token;
  }
  static void Prepare(grpc::ClientContext& context, const std::string& token) {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  }
  template <typename Stub, typename Request, typename Response>
  grpc::Status Call(Stub& stub,
                    grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, const std::string& token = "") {
    grpc::ClientContext context;
    Prepare(context, token);
    return (stub.*call)(&context, request, response);
  }
  grpc::Status Create(const std::string& request_id, v1::Job* job, const std::string& token = "") {
    v1::CreateJobRequest request;
    request.set_request_id(request_id);
    *request.mutable_spec() = MatmulSpec(4);
    return Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, job, token);
  }
  grpc::Status Info(const std::string& token = "") {
    v1::ServerInfo info;
    return Call(*tuning_, &v1::Tuning::Stub::GetServerInfo, v1::GetServerInfoRequest(), &info,
                token);
  }
  // A daemon that measures until `job` has ended.
  void Work(const std::string& job, const std::string& token = "") {
    v1::RegisterRequest hello;
    hello.set_host_uuid("host");
    hello.set_generator(measure::kGeneratorVersion);
    *hello.add_devices() = H100();
    v1::RegisterResponse session;
    grpc::Status status = Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session, token);
    ASSERT_TRUE(status.ok()) << status.error_message();
    v1::Job now;
    for (int i = 0; i < 2000 && !IsTerminal(now.state()); ++i) {
      v1::AcquireRequest acquire;
      acquire.set_session(session.session());
      acquire.set_device("cuda:0");
      acquire.set_request_id(absl::StrCat("a", i));
      acquire.set_max(8);
      *acquire.mutable_wait_duration() = DurationOf(0.05);
      v1::Lease lease;
      status = Call(*fleet_, &v1::Fleet::Stub::Acquire, acquire, &lease, token);
      ASSERT_TRUE(status.ok()) << status.error_message();
      if (lease.id() != 0) {
        v1::ReportRequest report = ReportOf(session.session(), lease);
        for (auto& result : *report.mutable_results()) {
          result.mutable_result()->set_detail(detail_);
        }
        v1::ReportResponse response;
        status = Call(*fleet_, &v1::Fleet::Stub::Report, report, &response, token);
        ASSERT_TRUE(status.ok()) << status.error_message();
      }
      v1::GetJobRequest get;
      get.set_name(job);
      ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::GetJob, get, &now, token).ok());
    }
    EXPECT_EQ(now.state(), v1::Job::STATE_SUCCEEDED) << now.error();
  }

  tests::TempFolder folder_;
  ServerOptions options_;
  std::string detail_;  // of every result
  std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Tuning::Stub> tuning_;
  std::unique_ptr<v1::Fleet::Stub> fleet_;
  std::unique_ptr<v1::Records::Stub> records_;
};

}  // namespace heddle::server

#endif  // HEDDLE_TESTS_SERVER_SERVER_FIXTURE_H_
