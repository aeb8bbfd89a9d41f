// What is known of a trial goes through messages whole: each field of the one list.
#include "measure/run/processes/messages.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace heddle::measure {
namespace {

// Gives each field a value of its own that is not its default.
struct Filler {
  int next = 1;

  void operator()(const char* name, std::string& value) { value = name; }
  void operator()(const char*, bool& value) { value = true; }
  void operator()(const char*, Outcome& value) { value = Outcome::kRunTimeout; }
  void operator()(const char*, auto& value) { value = next++; }
};

// Names and values.
std::vector<std::string> Fields(const TrialResult& result) {
  std::vector<std::string> fields;
  VisitResult(result, [&](const char* name, const auto& value) {
    std::ostringstream text;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Outcome>) {
      text << name << '=' << NameOf(value);
    } else {
      text << name << '=' << value;
    }
    fields.push_back(text.str());
  });
  return fields;
}

TEST(Messages, CarryEveryFieldOfAResult) {
  TrialResult result;
  VisitResult(result, Filler{});
  const v1::TrialResult message = ToProto(result);
  const std::vector<std::string> fields = Fields(result);
  EXPECT_EQ(Fields(FromProto(message)), fields);
  EXPECT_EQ(static_cast<size_t>(message.GetDescriptor()->field_count()), fields.size());
  EXPECT_EQ(message.time_us(), result.time_us);
  EXPECT_EQ(message.outcome(), v1::OUTCOME_RUN_TIMEOUT);
  EXPECT_EQ(Fields(FromProto(ToProto(TrialResult()))), Fields(TrialResult()));
}

TEST(Messages, CarryTensorMapsOfALaunch) {
  KernelLaunch launch{.entry = "k", .grid = 2, .block = 128, .dynamic_shared_bytes = 1024};
  launch.arguments = {"A", "C"};
  launch.maps.push_back({"A", 2, {4, 8, 64}, {1024, 128}, {1, 8, 32}, 64});
  launch.rounded_anew = {"C"};
  const KernelLaunch got = FromProto(ToProto(launch));
  EXPECT_EQ(got.arguments, launch.arguments);
  EXPECT_EQ(got.rounded_anew, launch.rounded_anew);
  ASSERT_EQ(got.maps.size(), 1u);
  const TensorMap &map = got.maps[0], &sent = launch.maps[0];
  EXPECT_EQ(map.buffer, "A");
  EXPECT_EQ(map.element_bytes, 2);
  EXPECT_EQ(map.shape, sent.shape);
  EXPECT_EQ(map.strides, sent.strides);
  EXPECT_EQ(map.box, sent.box);
  EXPECT_EQ(map.swizzle_bytes, 64);
}

TEST(Messages, CarryWorkspacesOfIntegers) {
  using namespace search_space;  // NOLINT: a buffer is made of these names
  const auto got = FromProto(ToProto(MakeBuffer("N", DType::kInt32, Scope::kGlobal, {3, 5})));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)->dtype, DType::kInt32);
  EXPECT_EQ((*got)->bytes(), 60);
  worker::Workspace unknown;
  unknown.set_dtype("int8");
  EXPECT_FALSE(FromProto(unknown).ok());
}

TEST(Messages, AnOutcomeOfANewerVersionIsALostWorker) {
  v1::TrialResult message;
  message.set_outcome(static_cast<v1::Outcome>(1000));
  EXPECT_EQ(FromProto(message).outcome, Outcome::kWorkerLost);
}

}  // namespace
}  // namespace heddle::measure
