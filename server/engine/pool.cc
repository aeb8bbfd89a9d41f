#include "server/engine/pool.h"

#include <algorithm>
#include <utility>

namespace heddle::server {

Pool::Pool(int threads, size_t most, size_t most_of_one)
    : threads_of_one_(std::max(1, threads - 1)), most_(most), most_of_one_(most_of_one) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Pool::~Pool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

std::deque<std::string>::iterator Pool::Next() {
  return std::find_if(turns_.begin(), turns_.end(), [this](const std::string& tenant) {
    return tenants_[tenant].running < threads_of_one_;
  });
}

void Pool::Work() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Next() != turns_.end() || (stopping_ && turns_.empty());
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&ready));
    const auto turn = Next();
    if (turn == turns_.end()) return;
    const std::string name = *turn;
    turns_.erase(turn);
    Tenant& tenant = tenants_[name];  // stays, as it has work
    std::function<void()> work = std::move(tenant.queue.front());
    tenant.queue.pop_front();
    --waiting_;
    ++tenant.running;
    if (!tenant.queue.empty()) turns_.push_back(name);
    mutex_.Unlock();
    work();
    work = nullptr;
    mutex_.Lock();
    if (--tenant.running == 0 && tenant.queue.empty()) tenants_.erase(name);
  }
}

size_t Pool::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_;
}

bool Pool::Run(const std::string& tenant, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  Tenant& mine = tenants_[tenant];
  if (waiting_ >= most_ || mine.queue.size() >= most_of_one_) return false;
  if (mine.queue.empty()) turns_.push_back(tenant);
  mine.queue.push_back(std::move(work));
  ++waiting_;
  return true;
}

}  // namespace heddle::server
