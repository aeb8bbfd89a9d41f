// Tests of this folder start children, which are this executable again.
#include <gtest/gtest.h>

#include <string>

#include "measure/run/worker_main.h"
#include "tests/measure/test_child.h"

int main(int argc, char** argv) {
  if (auto code = heddle::measure::RunHiddenCommand(argc, argv)) return *code;
  if (argc > 3 && argv[1] == std::string(heddle::measure::kTestChild)) {
    return heddle::measure::TestChildMain(argc, argv);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
