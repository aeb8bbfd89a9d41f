#include "tuner/model/analytic/sampled_eval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heddle::tuner {
namespace {

using search_space::Expr;
using search_space::Op;
using search_space::Var;

// Adding and taking away 1.5 * 2^52 rounds to the nearest integer without a call, so that the loops
// below become vector instructions.
constexpr double kRound = 6755399441055744.0;

double FloorDivide(double x, double d, double inverse) {
  const double q = (x * inverse + kRound) - kRound;
  return x < q * d ? q - 1 : q;
}

// a = f(a, b), element by element.
template <typename F>
void Combine(Sampled& a, Sampled& b, const F& f) {
  if (b.width == 1) {
    const double same = b.v[0];
    for (size_t i = 0; i < a.width; ++i) a.v[i] = f(a.v[i], same);
    return;
  }
  const size_t width = std::max(a.width, b.width);
  a.Widen(width);
  b.Widen(width);
  for (size_t i = 0; i < width; ++i) a.v[i] = f(a.v[i], b.v[i]);
}

// A fixed shuffle of 0 .. kWarpSamples - 1 for the n-th variable.
std::array<size_t, kWarpSamples> Order(uint64_t n) {
  std::array<size_t, kWarpSamples> order;
  uint64_t state = n * 0x9E3779B97F4A7C15U + 0x632BE59BD9B4E019U;
  for (size_t i = 0; i < kWarpSamples; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t j = (state >> 33U) % (i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  return order;
}

// A value of the part-th of kWarpSamples equal parts of 0 .. extent - 1, for the n-th variable.
// Where in the part it lies follows the golden ratio: the middles of all parts are alike modulo
// powers of two, by which blocks are often numbered.
double Stratum(size_t part, uint64_t n, double extent) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  const double place = static_cast<double>(n * kWarpSamples + part + 1) * kGoldenRatio;
  return std::floor((static_cast<double>(part) + place - std::floor(place)) / kWarpSamples *
                    extent);
}

bool IsMonotone(Op op) { return op == Op::kMin || op == Op::kMax; }

double Apply(Op op, double a, double b) { return op == Op::kMin ? std::min(a, b) : std::max(a, b); }

}  // namespace

void Sampled::Widen(size_t to) {
  if (width >= to) return;
  if (width == 1) {
    std::fill(v.begin() + 1, v.begin() + static_cast<std::ptrdiff_t>(to), v[0]);
  } else {
    for (size_t w = kWarpSamples; w-- > 0;) {
      std::fill_n(v.begin() + static_cast<std::ptrdiff_t>(w * kLanes), kLanes, v[w]);
    }
  }
  width = to;
}

SampledVariables::Slot& SampledVariables::NewSlot(const Var& var) {
  index_[var.get()] = static_cast<int>(slots_.size());
  const auto extent = static_cast<double>(var->extent);
  slots_.push_back({extent, {0, extent - 1}, {}});
  return slots_.back();
}

SampledVariables::SampledVariables(const Var& thread) {
  slots_.reserve(32);
  Slot& slot = NewSlot(thread);
  const auto order = Order(0);
  lanes_.width = kSamples;
  for (size_t w = 0; w < kWarpSamples; ++w) {
    slot.values[w] = Stratum(order[w], 0, std::ceil(slot.extent / kLanes)) * kLanes;
    for (size_t l = 0; l < kLanes; ++l) {
      lanes_.v[w * kLanes + l] = slot.values[w] + static_cast<double>(l) < slot.extent ? 1 : 0;
    }
  }
}

int SampledVariables::Bind(const Var& var, bool zero) {
  // A loop that was written out binds its variable again, mostly to zero as before.
  if (const auto known = index_.find(var.get()); known != index_.end()) {
    const auto& values = slots_[static_cast<size_t>(known->second)].values;
    const bool was_zero =
        std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
    if (!zero || !was_zero) kept_.clear();
  }
  const int id = static_cast<int>(slots_.size());
  Slot& slot = NewSlot(var);
  const auto order = Order(static_cast<uint64_t>(id));
  for (size_t w = 0; w < kWarpSamples && !zero; ++w) {
    slot.values[w] = Stratum(order[w], static_cast<uint64_t>(id), slot.extent);
  }
  return id;
}

void SampledVariables::Fix(int slot) {
  const double middle = std::floor(ExtentOf(slot) / 2);
  SetRange(slot, {middle, middle});
}

void SampledVariables::Relax(int slot) { SetRange(slot, {0, ExtentOf(slot) - 1}); }

const Sampled& SampledVariables::Values(const Expr& e) {
  if (!IsShared(e)) {
    Evaluate(e, latest_);
    return latest_;
  }
  const auto [kept, is_new] = kept_.try_emplace(e.get());
  if (is_new) Evaluate(e, kept->second);
  return kept->second;
}

void SampledVariables::Evaluate(const Expr& e, Sampled& out) const {
  const auto binary = [&](const auto& f) {
    Sampled right;
    Evaluate(e->args[0], out);
    Evaluate(e->args[1], right);
    Combine(out, right, f);
  };
  switch (e->op) {
    case Op::kInt:
      out.width = 1;
      out.v[0] = static_cast<double>(e->int_value);
      return;
    case Op::kVar: {
      const int id = SlotOf(e->var);
      const Slot& slot = slots_[static_cast<size_t>(id)];
      out.width = kWarpSamples;
      std::copy(slot.values.begin(), slot.values.end(), out.v.begin());
      if (id != 0) return;
      out.Widen(kSamples);
      for (size_t i = 0; i < kSamples; ++i) {
        out.v[i] = std::min(out.v[i] + static_cast<double>(i % kLanes), slot.extent - 1);
      }
      return;
    }
    case Op::kDiv:
    case Op::kMod: {
      Evaluate(e->args[0], out);
      const auto d = static_cast<double>(e->args[1]->int_value);
      const double inverse = 1 / d;
      const auto width = out.width;
      if (e->op == Op::kDiv) {
        for (size_t i = 0; i < width; ++i) out.v[i] = FloorDivide(out.v[i], d, inverse);
      } else {
        for (size_t i = 0; i < width; ++i) out.v[i] -= d * FloorDivide(out.v[i], d, inverse);
      }
      return;
    }
    case Op::kAdd:
      return binary([](double a, double b) { return a + b; });
    case Op::kSub:
      return binary([](double a, double b) { return a - b; });
    case Op::kMul:
    case Op::kAnd:
      return binary([](double a, double b) { return a * b; });
    case Op::kMin:
      return binary([](double a, double b) { return a < b ? a : b; });
    case Op::kMax:
    case Op::kOr:
      return binary([](double a, double b) { return a > b ? a : b; });
    case Op::kLt:
      return binary([](double a, double b) { return a < b ? 1.0 : 0.0; });
    case Op::kLe:
      return binary([](double a, double b) { return a <= b ? 1.0 : 0.0; });
    case Op::kEq:
      return binary([](double a, double b) { return a == b ? 1.0 : 0.0; });
    case Op::kNe:
      return binary([](double a, double b) { return a != b ? 1.0 : 0.0; });
    case Op::kNot:
      Evaluate(e->args[0], out);
      for (size_t i = 0; i < out.width; ++i) out.v[i] = 1 - out.v[i];
      return;
    case Op::kSelect: {
      Sampled condition, other;
      Evaluate(e->args[0], condition);
      Evaluate(e->args[1], out);
      Evaluate(e->args[2], other);
      Combine(out, condition, [](double a, double c) { return a * c; });
      Combine(other, condition, [](double a, double c) { return a * (1 - c); });
      Combine(out, other, [](double a, double b) { return a + b; });
      return;
    }
    case Op::kCast:
      Evaluate(e->args[0], out);
      return;
    case Op::kLoad:
      if (ReadsIndices(e)) return EvaluateIndex(e, out);
      [[fallthrough]];
    default:  // a value that memory decides; its address pattern is not known
      out.width = 1;
      out.v[0] = 0;
      return;
  }
}

// What an index input holds is anything that it may: each place has an index of its own, which
// others do not tell.
void SampledVariables::EvaluateIndex(const Expr& load, Sampled& out) const {
  out.width = 1;
  out.v[0] = 0;
  for (size_t d = 0; d < load->args.size(); ++d) {
    Sampled index;
    Evaluate(load->args[d], index);
    const auto stride = static_cast<double>(load->buffer->strides[d]);
    Combine(out, index, [stride](double offset, double i) { return offset + i * stride; });
  }
  for (size_t i = 0; i < out.width; ++i) {
    const uint64_t bits =
        static_cast<uint64_t>(static_cast<int64_t>(out.v[i])) * 0x9E3779B97F4A7C15U;
    const double share = static_cast<double>(bits >> 11U) * 0x1p-53;
    out.v[i] = std::floor(share * static_cast<double>(load->buffer->index_extent));
  }
}

Range SampledVariables::RangeOf(const Expr& e) const {
  switch (e->op) {
    case Op::kInt: {
      const auto value = static_cast<double>(e->int_value);
      return {value, value};
    }
    case Op::kVar:
      return slots_[static_cast<size_t>(SlotOf(e->var))].range;
    case Op::kAdd: {
      const Range a = RangeOf(e->args[0]), b = RangeOf(e->args[1]);
      return {a.min + b.min, a.max + b.max};
    }
    case Op::kSub: {
      const Range a = RangeOf(e->args[0]), b = RangeOf(e->args[1]);
      return {a.min - b.max, a.max - b.min};
    }
    case Op::kMul: {
      const Range a = RangeOf(e->args[0]), b = RangeOf(e->args[1]);
      const auto [low, high] =
          std::minmax({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
      return {low, high};
    }
    case Op::kDiv: {
      const Range a = RangeOf(e->args[0]);
      const auto d = static_cast<double>(e->args[1]->int_value);
      return {std::floor(a.min / d), std::floor(a.max / d)};
    }
    case Op::kMod: {
      const Range a = RangeOf(e->args[0]);
      const auto d = static_cast<double>(e->args[1]->int_value);
      const double period = std::floor(a.min / d);
      if (period != std::floor(a.max / d)) return {0, d - 1};
      return {a.min - period * d, a.max - period * d};
    }
    case Op::kSelect: {
      const Range a = RangeOf(e->args[1]), b = RangeOf(e->args[2]);
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kLoad:
      return {0, std::max(0.0, static_cast<double>(e->buffer->index_extent - 1))};
    default:
      if (IsMonotone(e->op)) {
        const Range a = RangeOf(e->args[0]), b = RangeOf(e->args[1]);
        return {Apply(e->op, a.min, b.min), Apply(e->op, a.max, b.max)};
      }
      return {0, 0};
  }
}

}  // namespace heddle::tuner
