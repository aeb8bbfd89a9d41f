#include "search_space/notation/stage_evaluator.h"

#include <algorithm>
#include <cmath>

namespace heddle::search_space {
namespace {

// Combined one after the other; nearly all are sums.
Scalar CombinedWith(Combiner combiner, Scalar total, const Scalar* values, int count) {
  for (int i = 0; i < count; ++i) {
    if (combiner != Combiner::kSum) {
      total = Combined(combiner, total, values[i]);
      continue;
    }
    total.value += values[i].value;
    total.magnitude += values[i].magnitude;
    total.uncertain |= values[i].uncertain;
    total.exact = total.contested = false;
  }
  return total;
}

void SetAxes(const std::vector<Var>& axes, int64_t number, int64_t* values) {
  for (size_t d = axes.size(); d-- > 0;) {
    values[d] = number % axes[d]->extent;
    number /= axes[d]->extent;
  }
}

void ToNextTerm(const Stage& stage, std::vector<int64_t>& axes) {
  for (size_t r = stage.reduce_axes.size(); r-- > 0;) {
    int64_t& value = axes[stage.axes.size() + r];
    if (++value < stage.reduce_axes[r]->extent) return;
    value = 0;
  }
}

}  // namespace

StageEvaluator::StageEvaluator(const TensorProgram& program, Source& source, bool turned)
    : program_(program), source_(source), turned_(turned) {
  for (const Stage& stage : program.stages) {
    frames_.push_back({StageProgram(program, stage), {}, {}, {}});
    Frame& frame = frames_.back();
    frame.axes.resize(stage.axes.size() + stage.reduce_axes.size());
    frame.values.resize(frame.program.stack_depth() * StageProgram::kLanes);
    frame.integers.resize(frame.program.stack_depth() * StageProgram::kLanes);
  }
}

int64_t StageEvaluator::Terms(int stage) const {
  return ExtentOf(program_.stages[stage].reduce_axes);
}

double StageEvaluator::OperationsOf(int stage) const {
  return static_cast<double>(frames_[stage].program.size()) * static_cast<double>(Terms(stage));
}

Scalar StageEvaluator::Part(int index, int64_t offset, int64_t begin, int64_t end) {
  const Stage& stage = program_.stages[index];
  Frame& frame = frames_[index];
  SetAxes(stage.axes, offset, frame.axes.data());
  SetAxes(stage.reduce_axes, begin, frame.axes.data() + stage.axes.size());
  if (stage.combiner == Combiner::kSum && frame.program.product().has_value()) {
    return SumOfProducts(stage, frame, end - begin);
  }
  Run(frame, 1);
  Scalar total = frame.values[0];
  int64_t apart = 0;  // terms that part ways at a condition, which are evaluated one by one
  for (int64_t term = begin + 1; term < end;) {
    ToNextTerm(stage, frame.axes);
    const int64_t along = stage.reduce_axes.back()->extent - frame.axes.back();
    auto count =
        static_cast<int>(std::min({end - term, along, static_cast<int64_t>(StageProgram::kLanes)}));
    if (apart == 0 && !Run(frame, count)) apart = count;
    if (apart > 0) {
      --apart;
      Run(frame, count = 1);
    }
    total = CombinedWith(stage.combiner, total, frame.values.data(), count);
    term += count;
    frame.axes.back() += count - 1;
  }
  return total;
}

void StageEvaluator::Elements(int stage, int64_t offset, int count, Scalar* elements) {
  Frame& frame = frames_[stage];
  SetAxes(program_.stages[stage].axes, offset, frame.axes.data());
  if (Run(frame, count)) {
    std::copy_n(frame.values.begin(), count, elements);
    return;
  }
  for (int i = 0; i < count; ++i, ++frame.axes.back()) {
    Run(frame, 1);
    elements[i] = frame.values[0];
  }
}

// The same as term by term: of all that a sample costs most is this.
Scalar StageEvaluator::SumOfProducts(const Stage& stage, Frame& frame, int64_t terms) {
  const StageProgram::Product& product = *frame.program.product();
  const auto inner = static_cast<int>(frame.axes.size()) - 1;
  const int64_t steps[] = {product.offsets[0].FactorOf(inner), product.offsets[1].FactorOf(inner)};
  operations_ += frame.program.size() * terms;
  const double* const wholes[] = {source_.WholeInput(product.inputs[0]),
                                  source_.WholeInput(product.inputs[1])};
  Scalar total{-0.0, 0};  // to which the first term is added without a change
  const auto add = [&](double term) {
    total.value += term;
    total.magnitude += std::abs(term);
  };
  while (terms > 0) {
    int64_t& at = frame.axes.back();
    const int64_t run = std::min(terms, stage.reduce_axes.back()->extent - at);
    int64_t a = product.offsets[0].At(frame.axes.data()),
            b = product.offsets[1].At(frame.axes.data());
    if (wholes[0] != nullptr && wholes[1] != nullptr) {
      for (int64_t i = 0; i < run; ++i, a += steps[0], b += steps[1]) {
        add(wholes[0][a] * wholes[1][b]);
      }
    } else {
      for (int64_t i = 0; i < run; ++i, a += steps[0], b += steps[1]) {
        add(source_.Input(product.inputs[0], a).value * source_.Input(product.inputs[1], b).value);
      }
    }
    terms -= run;
    at += run - 1;
    ToNextTerm(stage, frame.axes);
  }
  return total;
}

bool StageEvaluator::Run(Frame& frame, int count) {
  const auto axis = static_cast<int>(frame.axes.size()) - 1;
  const auto load = [this](const TensorId& tensor, int64_t offset, int64_t step, int lanes,
                           Scalar* values) { Load(tensor, offset, step, lanes, values); };
  if (!frame.program.Run(frame.axes.data(), axis, count, frame.values.data(), frame.integers.data(),
                         turned_, load)) {
    return false;
  }
  operations_ += frame.program.size() * count;
  return true;
}

void StageEvaluator::Load(const TensorId& tensor, int64_t offset, int64_t step, int count,
                          Scalar* values) {
  const double* const whole = tensor.is_input ? source_.WholeInput(tensor.index) : nullptr;
  for (int lane = 0; lane < count; ++lane, offset += step) {
    values[lane] = whole != nullptr  ? Exact(whole[offset])
                   : tensor.is_input ? source_.Input(tensor.index, offset)
                                     : source_.Intermediate(tensor.index, offset);
  }
}

}  // namespace heddle::search_space
