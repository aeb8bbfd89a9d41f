// Memory of the nodes of expressions and statements. They are many, of few sizes, and most live
// shortly: each thread keeps the memory of those that it frees for those that it makes next.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_MAKE_NODE_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_MAKE_NODE_H_

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace heddle::search_space {

// Blocks of one size.
template <size_t kSize>
class NodeMemory {
 public:
  static void* Take() {
    Kept& kept = Mine();
    if (kept.first == nullptr) return ::operator new(kSize);
    Block* const block = kept.first;
    kept.first = block->next;
    --kept.count;
    return block;
  }

  static void Give(void* memory) {
    Kept& kept = Mine();
    if (kept.count >= kept.most && !MayKeepMore(kept)) return ::operator delete(memory);
    kept.first = new (memory) Block{kept.first};
    ++kept.count;
  }

 private:
  struct Block {
    Block* next;
  };
  static_assert(kSize >= sizeof(Block));

#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMost = 0;  // what is freed must not be touched again
#else
  static constexpr size_t kMost = (size_t{1} << 20) / kSize;  // of a thread
#endif

  // Destroyed by nobody, since nodes may be freed as long as the thread lives.
  struct Kept {
    Block* first = nullptr;
    size_t count = 0, most = 0;
    bool is_over = false;
  };
  static Kept& Mine() {
    thread_local constinit Kept kept;
    return kept;
  }

  // When a thread ends, so does what it keeps.
  struct AtEnd {
    ~AtEnd() {
      Kept& kept = Mine();
      kept.most = 0;
      kept.is_over = true;
      for (; kept.first != nullptr; --kept.count) {
        ::operator delete(std::exchange(kept.first, kept.first->next));
      }
    }
  };

  // Is it the first block that the thread frees?
  static bool MayKeepMore(Kept& kept) {
    if (kept.most > 0 || kept.is_over || kMost == 0) return false;
    thread_local const AtEnd at_end;
    kept.most = kMost;
    return true;
  }
};

template <typename T>
struct NodeAllocator {
  using value_type = T;
  NodeAllocator() = default;
  template <typename U>
  explicit(false) NodeAllocator(const NodeAllocator<U>& /*other*/) {}
  static T* allocate(size_t /*one*/) { return static_cast<T*>(NodeMemory<sizeof(T)>::Take()); }
  static void deallocate(T* node, size_t /*one*/) { NodeMemory<sizeof(T)>::Give(node); }
  bool operator==(const NodeAllocator&) const = default;
};

// A node, for std::make_shared.
template <typename T, typename... Args>
std::shared_ptr<T> MakeNode(Args&&... args) {
  return std::allocate_shared<T>(NodeAllocator<T>(), std::forward<Args>(args)...);
}

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_MAKE_NODE_H_
