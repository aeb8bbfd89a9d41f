#include "search_space/reference/stage_evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <experimental/simd>
#include <type_traits>
#include <utility>

namespace heddle::search_space {
namespace {

namespace simd = std::experimental;

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

// Sums of every so many-th term: one would have each term wait for the one before.
constexpr int kSums = 8;
using Sums = simd::fixed_size_simd<double, kSums>;

using Neighbours = std::integral_constant<int64_t, 1>;

// Elements that are so many apart.
template <typename Step>
[[gnu::always_inline]] inline Sums ElementsOf(const float* first, Step step) {
  if constexpr (std::is_same_v<Step, Neighbours>) {
    return Sums(first, simd::element_aligned);
  } else {
    return Sums([=](int64_t i) { return static_cast<double>(first[i * step]); });
  }
}

// Adds products of inputs' elements.
template <typename StepA, typename StepB>
void AddInputs(const float* a, StepA a_step, const float* b, StepB b_step, int64_t count,
               Scalar& total) {
  Sums values = -0.0, magnitudes = 0;  // to the first the first terms are added without a change
  for (; count >= kSums; count -= kSums, a += kSums * a_step, b += kSums * b_step) {
    const Sums terms = ElementsOf(a, a_step) * ElementsOf(b, b_step);
    values += terms;
    magnitudes += abs(terms);
  }
  total.value += reduce(values);
  total.magnitude += reduce(magnitudes);
  for (; count > 0; --count, a += a_step, b += b_step) {
    const double term = static_cast<double>(*a) * static_cast<double>(*b);
    total.value += term;
    total.magnitude += std::abs(term);
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
  if (stage.combiner == Combiner::kSum && !frame.program.factors().empty()) {
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

// The same as term by term, but for the order in which inputs' products are added: of all that a
// sample costs most is this.
Scalar StageEvaluator::SumOfProducts(const Stage& stage, Frame& frame, int64_t terms) {
  operations_ += frame.program.size() * terms;
  Scalar total{-0.0, 0};  // to which the first term is added without a change
  while (terms > 0) {
    int64_t& at = frame.axes.back();
    const int64_t run = std::min(terms, stage.reduce_axes.back()->extent - at);
    AddProducts(frame, run, total);
    terms -= run;
    at += run - 1;
    ToNextTerm(stage, frame.axes);
  }
  return total;
}

// Of so many terms along the last axis.
void StageEvaluator::AddProducts(Frame& frame, int64_t count, Scalar& total) {
  const std::vector<StageProgram::Factor>& factors = frame.program.factors();
  const auto inner = static_cast<int>(frame.axes.size()) - 1;
  const auto place_of = [&](const StageProgram::Factor& factor) {
    return std::pair(factor.offset.At(frame.axes.data()), factor.offset.FactorOf(inner));
  };
  const auto whole = [this](const TensorId& tensor) {
    return tensor.is_input ? source_.WholeInput(tensor.index) : nullptr;
  };
  if (factors.size() == 2 && whole(factors[0].tensor) && whole(factors[1].tensor)) {
    const auto [a_at, a_step] = place_of(factors[0]);
    const auto [b_at, b_step] = place_of(factors[1]);
    const float* a = whole(factors[0].tensor) + a_at;
    const float* b = whole(factors[1].tensor) + b_at;
    a_step == 1 && b_step == 1 ? AddInputs(a, Neighbours{}, b, Neighbours{}, count, total)
                               : AddInputs(a, a_step, b, b_step, count, total);
    return;
  }
  // Evaluating a factor may lead to this stage no more, so that the frame's memory is free.
  Scalar* const terms = frame.values.data();
  std::array<Scalar, StageProgram::kLanes> elements;
  for (int64_t done = 0; done < count; done += StageProgram::kLanes) {
    const auto lanes = static_cast<int>(std::min<int64_t>(count - done, StageProgram::kLanes));
    for (size_t f = 0; f < factors.size(); ++f) {
      const auto [at, step] = place_of(factors[f]);
      Scalar* const to = f == 0 ? terms : elements.data();
      Load(factors[f].tensor, at + done * step, step, lanes, to);
      if (f == 0) continue;
      for (int lane = 0; lane < lanes; ++lane) {
        Scalar& term = terms[lane];
        const Scalar& element = elements[static_cast<size_t>(lane)];
        term.value *= element.value;
        term.magnitude *= element.magnitude;
        term.uncertain |= element.uncertain;
      }
    }
    total = CombinedWith(Combiner::kSum, total, terms, lanes);
  }
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
  if (!tensor.is_input) {
    source_.Intermediates(tensor.index, offset, step, count, values);
    return;
  }
  const float* const whole = source_.WholeInput(tensor.index);
  for (int lane = 0; lane < count; ++lane, offset += step) {
    values[lane] = whole != nullptr ? Exact(whole[offset]) : source_.Input(tensor.index, offset);
  }
}

}  // namespace heddle::search_space
