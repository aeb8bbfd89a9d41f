#include "measure/device/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "measure/codegen/dialects.h"
#include "measure/device/device.h"
#include "measure/run/processes/messages.h"

namespace heddle::measure {
namespace {

using ::testing::HasSubstr;

TEST(Backends, EveryLanguageHasOne) {
  for (const Dialect& dialect : Dialects()) {
    DeviceInfo described;  // without an id
    described.target.api = dialect.api;
    EXPECT_EQ(BackendOf(described).name, std::string(dialect.name));
    EXPECT_EQ(FindDialect(dialect.name), &dialect);
  }
  EXPECT_EQ(FindDialect("hip"), nullptr);
}

TEST(Backends, IdsNameTheirs) {
  for (const Backend* backend : Backends()) {
    EXPECT_EQ(FindBackend(std::string(backend->name) + ":7"), backend);
  }
  EXPECT_EQ(FindBackend("hip:0"), nullptr);
  EXPECT_EQ(FindBackend(""), nullptr);
}

TEST(Backends, AKeyHasWhatTheBinaryDependsOn) {
  DeviceInfo gpu{.id = "cuda:0"}, host{.id = "opencl:0"};
  const KernelLaunch one{.grid = 1, .block = 32}, two{.grid = 2, .block = 32};
  EXPECT_EQ(BackendOf(gpu).cache_key(gpu, one), BackendOf(gpu).cache_key(gpu, two));
  EXPECT_NE(BackendOf(host).cache_key(host, one), BackendOf(host).cache_key(host, two));
  DeviceInfo other = gpu;
  other.target.arch = "sm_80";
  EXPECT_NE(BackendOf(gpu).cache_key(gpu, one), BackendOf(gpu).cache_key(other, one));
}

// Of a newer version, which knows more kinds of devices.
TEST(Backends, AnUnknownApiIsNoOpenCl) {
  DeviceInfo device{.id = "hip:0"};
  v1::Device message = ToProto(device);
  message.mutable_target()->set_api("hip");
  const DeviceInfo back = FromProto(message);
  EXPECT_FALSE(back.usable);
  EXPECT_THAT(back.why_not, HasSubstr("'hip'"));
}

}  // namespace
}  // namespace heddle::measure
