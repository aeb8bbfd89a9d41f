// Searchers that the tests start are this executable again.
#include <gtest/gtest.h>

#include "server/engine/searcher.h"

int main(int argc, char** argv) {
  if (auto code = heddle::server::RunSearcherCommand(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
