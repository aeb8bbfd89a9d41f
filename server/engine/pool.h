// Threads that work for many callers.
#ifndef HEDDLE_SERVER_ENGINE_POOL_H_
#define HEDDLE_SERVER_ENGINE_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace heddle::server {

// Threads for what takes longer than a look into the database: gRPC's own must stay free. Tenants
// take turns, and where there are several threads one tenant never has them all.
class Pool {
 public:
  // At most `most` calls wait, and of one tenant `most_of_one`.
  explicit Pool(int threads, size_t most = 10000, size_t most_of_one = 2000);
  ~Pool();  // runs what is queued
  // False: too much is waiting.
  bool Run(const std::string& tenant, std::function<void()> work);
  size_t waiting() const;

 private:
  struct Tenant {
    std::deque<std::function<void()>> queue;
    int running = 0;
  };
  // Of turns_, the first that may have another thread.
  std::deque<std::string>::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const int threads_of_one_;
  const size_t most_, most_of_one_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);  // with work
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);          // those with a queue
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_POOL_H_
