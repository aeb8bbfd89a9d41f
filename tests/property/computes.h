// Does a point compute what the operator's definition says?
#ifndef HEDDLE_TESTS_PROPERTY_COMPUTES_H_
#define HEDDLE_TESTS_PROPERTY_COMPUTES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "search_space/ir/tensor_values.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tests {

// A program with inputs and what its definition makes of them. The inputs are small integers, so
// that sums of products are exact whatever their order and one lost term shows.
class Subject {
 public:
  explicit Subject(search_space::TensorProgram program);

  const std::shared_ptr<const search_space::TensorProgram>& program() const { return program_; }

  // `steps` lower, verify for `target`, and compute the outputs with threads in an order by `seed`;
  // up to `tolerance` of the largest element of each. Fatal failures otherwise.
  void ExpectComputes(const std::vector<search_space::Step>& steps,
                      const search_space::Target& target, double tolerance, uint64_t seed) const;

 private:
  std::shared_ptr<const search_space::TensorProgram> program_;
  search_space::TensorValues expected_;  // inputs, too
};

// Calls `use` with `count` points, numbered: the default, then random ones, mutants and children of
// two. Ends with the first fatal failure.
void ForPoints(const search_space::SearchSpace& space, uint64_t seed, int count,
               const std::function<void(const search_space::Point&, int number)>& use);

// The kernels that the parts of a point become on their own are those of its steps.
void ExpectPartsAreTheProgram(const search_space::SearchSpace& space,
                              const search_space::Point& point);

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_PROPERTY_COMPUTES_H_
