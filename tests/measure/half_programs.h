// Programs of 16-bit tensors on a device, against their definitions.
#ifndef HEDDLE_TESTS_MEASURE_HALF_PROGRAMS_H_
#define HEDDLE_TESTS_MEASURE_HALF_PROGRAMS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "measure/codegen/codegen.h"
#include "measure/device/device.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"

namespace heddle::tests {

// Of a built-in operator.
struct HalfWorkload {
  const char* op;
  const char* shape;

  std::shared_ptr<const search_space::TensorProgram> Program(search_space::DType type) const {
    using namespace search_space;
    return std::make_shared<const TensorProgram>(
        *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), type));
  }
};
inline void PrintTo(const HalfWorkload& w, std::ostream* out) { *out << w.op << " " << w.shape; }

using HalfTensors = std::vector<std::vector<uint16_t>>;  // of each input, the bits

// Small integers as inputs, whose sums every type has; `values` gets them and what they make.
inline HalfTensors IntegersInto(const search_space::TensorProgram& program,
                                search_space::TensorValues& values) {
  HalfTensors inputs;
  for (const search_space::BufferRef& input : program.inputs) {
    inputs.emplace_back();
    for (int64_t i = 0; i < input->elements; ++i) {
      values[input->name].push_back(static_cast<double>((i * 7 + i / 11) % 9) - 4);
      inputs.back().push_back(search_space::HalfBits(input->dtype, values[input->name].back()));
    }
  }
  EvaluateAll(program, values);
  return inputs;
}

// Runs `point` once; the bits of its first output. `compile` makes a kernel's binary.
inline std::vector<uint16_t> RunOnce(
    measure::Device& device, const search_space::Program& point, const HalfTensors& inputs,
    const std::function<std::string(const measure::KernelSource&)>& compile) {
  std::vector<measure::KernelBinary> binaries;
  for (const measure::KernelSource& kernel :
       measure::GenerateSource(point, device.info().target, "")) {
    binaries.push_back({kernel.launch, compile(kernel)});
  }
  auto loaded = device.Load(binaries);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  std::vector<std::unique_ptr<measure::DeviceBuffer>> buffers;
  measure::BufferSet set;
  const auto add = [&](const search_space::BufferRef& ref) {
    buffers.push_back(*device.Allocate(ref->bytes()));
    set[ref->name] = buffers.back().get();
  };
  for (size_t i = 0; i < point.inputs.size(); ++i) {
    add(point.inputs[i]);
    EXPECT_TRUE(device.Upload(*buffers.back(), inputs[i].data(), point.inputs[i]->bytes()).ok());
  }
  for (const search_space::BufferRef& workspace : point.workspaces) add(workspace);
  for (const search_space::BufferRef& output : point.outputs) add(output);
  EXPECT_TRUE(device.Run(**loaded, set).ok());
  for (const auto& buffer : buffers) EXPECT_TRUE(*device.GuardsIntact(*buffer));
  const search_space::BufferRef& first = point.outputs[0];
  std::vector<uint16_t> bits(static_cast<size_t>(first->elements));
  const auto buffer = buffers.end() - static_cast<ptrdiff_t>(point.outputs.size());
  EXPECT_TRUE(device.Download(**buffer, bits.data(), first->bytes()).ok());
  return bits;
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_MEASURE_HALF_PROGRAMS_H_
