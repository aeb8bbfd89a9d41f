#include "base/parallel.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace heddle {

void InParallel(size_t count, int threads,
                const std::function<void(std::atomic<size_t>& next)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> workers;
  for (size_t t = 1; t < std::min(static_cast<size_t>(std::max(threads, 1)), count); ++t) {
    workers.emplace_back([&] { work(next); });
  }
  work(next);
  for (std::thread& worker : workers) worker.join();
}

}  // namespace heddle
