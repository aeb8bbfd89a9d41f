#include "base/process/sandbox.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/clock.h"
#include "base/process/subprocess.h"
#include "measure/run/processes/confine.h"
#include "proto/worker.pb.h"
#include "tests/measure/test_child.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

namespace fs = std::filesystem;

TEST(SandboxTest, AConfinedProcessOpensNothingElse) {
  HEDDLE_NEEDS("landlock", FindLandlock().ok(), FindLandlock());
  HEDDLE_NEEDS("seccomp", FindSeccomp().ok(), FindSeccomp());
  char folder[] = "/tmp/heddle-sandbox-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string allowed = std::string(folder) + "/allowed";
  const std::string secret = std::string(folder) + "/token";
  fs::create_directory(allowed);
  std::ofstream(secret) << "secret";
  auto child = Subprocess::Start(kTestChild, {"confined", allowed, secret});
  ASSERT_TRUE(child.ok()) << child.status();
  worker::Status report;
  absl::Status status = (*child)->Receive(report, SteadyNow() + absl::Seconds(30));
  EXPECT_TRUE(status.ok()) << status << (*child)->Evidence();
  EXPECT_EQ(report.message(), "");
  EXPECT_EQ(fs::file_size(secret), 6);
  fs::remove_all(folder);
}

TEST(SandboxTest, WhatIsInForceIsSaid) {
  const Confinement found = FindConfinement();
  EXPECT_EQ(found.whole, FindLandlock().ok() && FindSeccomp().ok());
  if (!FindLandlock().ok()) {
    EXPECT_NE(found.text.find(std::string(FindLandlock().message())), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::measure
