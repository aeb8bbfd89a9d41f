// Products of one matrix with several that are made one of, such as a layer's gate and what it
// opens, as one product with an axis that numbers them. One kernel fetches what they share once,
// and no product is stored for another one.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_STACK_PRODUCTS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_STACK_PRODUCTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The product `stage` has an axis more, in front, along which those follow that go with it. Comes
// before all other steps.
struct StackProducts {
  std::string stage;

  HEDDLE_PRIMITIVE(StackProducts, "stack_products", stage);
};

// The program with stage `name` and up to three others,
//   P[x] = sum(r) f * U[u]        Q[x] = sum(r) f * V[u]        Y[..] = .. P[x] .. Q[x] ..
// of both of which an elementwise stage is made, itself or through others, of tensors U and V of
// the same type and extents, as
//   P[a: 2, x] = sum(r) f * select(a < 1, U[u], V[u])           Y[..] = .. P[0, x] .. P[1, x] ..
// InvalidArgument where there are none.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithStackedProducts(
    const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_STACK_PRODUCTS_H_
