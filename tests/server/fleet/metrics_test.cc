// What the files for operators in deploy/ name is what the server exports.
#include "server/metrics/metrics.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "measure/device/outcome.h"
#include "server/metrics/health_metrics.h"
#include "tests/support.h"

namespace heddle::server {
namespace {

// As Prometheus knows them: a histogram is three.
std::set<std::string> Exported() {
  Metrics metrics;
  metrics.CountTrial(measure::TrialResult(), "a model");
  metrics.CountQuery("exact", false);
  metrics.CountRpc("GetJob", "OK", 0.1);
  metrics.SetJobs("QUEUED", 1);
  metrics.SetDevices("busy", 1);
  metrics.SetCallsWaiting("light", 1);
  CountWorkerFailure(metrics.registry(), "RESTARTING");
  SetBuildInfo(metrics.registry(), "0.1.0", 1);
  SetCertificateExpiry(metrics.registry(), "server", absl::UnixEpoch());
  std::set<std::string> names;
  for (const prometheus::MetricFamily& family : metrics.registry().Collect()) {
    if (family.type != prometheus::MetricType::Histogram) {
      names.insert(family.name);
      continue;
    }
    for (const char* part : {"_bucket", "_sum", "_count"}) names.insert(family.name + part);
  }
  return names;
}

// Whoever registers devices names their models: that makes no series without end.
TEST(MetricsTest, SoManyModelsHaveALabel) {
  Metrics metrics;
  for (int i = 0; i < 1000; ++i) {
    metrics.CountTrial(measure::TrialResult(), absl::StrCat("model ", i));
  }
  for (const prometheus::MetricFamily& family : metrics.registry().Collect()) {
    if (family.name != "heddle_trials_total") continue;
    EXPECT_EQ(family.metric.size(), 65U);
    double counted = 0;
    for (const auto& metric : family.metric) counted += metric.counter.value;
    EXPECT_EQ(counted, 1000);
  }
}

class DeployTest : public testing::TestWithParam<const char*> {};

TEST_P(DeployTest, EveryMetricItNamesIsExported) {
  std::ifstream file(absl::StrCat(tests::SourceDir(), "/deploy/", GetParam()));
  ASSERT_TRUE(file) << GetParam();
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const std::set<std::string> exported = Exported();
  std::set<std::string> named;
  const std::regex metric("\\bheddle_[a-z_]+");
  for (std::sregex_iterator it(all.begin(), all.end(), metric), end; it != end; ++it) {
    named.insert(it->str());
    EXPECT_TRUE(exported.contains(it->str())) << it->str();
  }
  EXPECT_GE(named.size(), 8U) << "nothing was found";
}

INSTANTIATE_TEST_SUITE_P(Files, DeployTest,
                         testing::Values("heddle-alerts.yml", "heddle-dashboard.json"));

TEST(HealthMetricsTest, AFailureOfAWorkerIsCountedByItsState) {
  prometheus::Registry registry;
  CountWorkerFailure(registry, "RESTARTING");
  CountWorkerFailure(registry, "WEDGED");
  CountWorkerFailure(registry, "RESTARTING");
  const auto families = registry.Collect();
  ASSERT_EQ(families.size(), 1U) << "one family, however often it is counted";
  double restarts = 0;
  for (const auto& metric : families[0].metric) {
    if (metric.label.at(0).value == "RESTARTING") restarts = metric.counter.value;
  }
  EXPECT_EQ(restarts, 2);
}

TEST(HealthMetricsTest, WhatIsNoCertificateIsSaid) {
  EXPECT_EQ(CertificateExpiry("/dev/null").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CertificateExpiry("/nowhere").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::server
