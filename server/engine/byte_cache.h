// What was worked out lately, bounded by its bytes. Thread-safe.
#ifndef HEDDLE_SERVER_ENGINE_BYTE_CACHE_H_
#define HEDDLE_SERVER_ENGINE_BYTE_CACHE_H_

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace heddle::server {

template <typename Value>
class ByteCache {
 public:
  explicit ByteCache(size_t most = size_t{16} << 20) : most_(most) {}

  std::optional<Value> Find(const std::string& key) {
    absl::MutexLock lock(&mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->value;
  }

  // `bytes`: of the value, the key's come on top. What was used longest ago goes; what is larger
  // than all that may be kept is not kept.
  void Add(const std::string& key, Value value, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    bytes += key.size() + kOverhead;
    if (bytes > most_ || by_key_.count(key) > 0) return;
    entries_.push_front({key, std::move(value), bytes});
    by_key_[entries_.front().key] = entries_.begin();
    bytes_ += bytes;
    while (bytes_ > most_) {
      bytes_ -= entries_.back().bytes;
      by_key_.erase(entries_.back().key);
      entries_.pop_back();
    }
  }

  size_t bytes() const {
    absl::MutexLock lock(&mutex_);
    return bytes_;
  }

 private:
  static constexpr size_t kOverhead = 256;  // of the nodes, about
  struct Entry {
    std::string key;
    Value value;
    size_t bytes;
  };
  const size_t most_;
  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // used last comes first
  // By keys of the entries.
  std::unordered_map<std::string_view, typename std::list<Entry>::iterator> by_key_
      ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_BYTE_CACHE_H_
