// The daemon's children are this executable again.
#include <gtest/gtest.h>

#include "measure/run/worker_main.h"

int main(int argc, char** argv) {
  if (auto code = heddle::measure::RunHiddenCommand(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
