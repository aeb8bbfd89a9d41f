#include "search_space/notation/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/notation/reference_program.h"

namespace heddle::search_space {
namespace {

// Points evaluated one after another by one thread, sharing intermediate results.
constexpr int64_t kClusterPoints = 64;
constexpr size_t kFewestPoints = 16;
// Instructions of a point for which threads are worth it.
constexpr int64_t kWorthThreads = int64_t{1} << 20;
// Instructions of a reduction that is worth being computed in parts, by threads where there are
// some, and how many.
constexpr double kWorthParts = 0x1p26;
constexpr int64_t kParts = 64;
// Intermediate results kept between clusters.
constexpr size_t kMostRemembered = size_t{1} << 20;
// Elements of inputs that are kept while a reduction is computed in parts by threads: 128 MB.
constexpr size_t kMostKept = size_t{1} << 24;

// What a tensor of a narrow type keeps of a value; others are taken to keep all of it.
double InMemory(DType type, double value) { return IsNarrow(type) ? RoundTo(type, value) : value; }

// Has up to `threads` threads take what there is to do, `count` times, by counting `next` up.
void InParallel(size_t count, int threads,
                const std::function<void(std::atomic<size_t>& next)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> workers;
  for (int t = 1; t < std::min(threads, static_cast<int>(count)); ++t) {
    workers.emplace_back([&] { work(next); });
  }
  work(next);
  for (std::thread& worker : workers) worker.join();
}

// Where tensors' elements come from.
class Source {
 public:
  virtual ~Source() = default;
  virtual Scalar Input(int input, int64_t offset) = 0;
  // All elements of an input, where they are kept.
  virtual const double* WholeInput(int /*input*/) const { return nullptr; }
  virtual Scalar Intermediate(int stage, int64_t offset) = 0;
};

// Evaluates single elements of stages. Every stage has its own working memory: a stage never
// evaluates itself, so that recursion from one stage into another is safe.
class Evaluator {
 public:
  Evaluator(const TensorProgram& program, Source& source) : program_(program), source_(source) {
    for (const Stage& stage : program.stages) {
      frames_.push_back({StageProgram(program, stage), {}, {}, {}});
      Frame& frame = frames_.back();
      frame.axes.resize(stage.axes.size() + stage.reduce_axes.size());
      frame.values.resize(frame.program.stack_depth());
      frame.integers.resize(frame.program.stack_depth());
      auto term = static_cast<double>(frame.program.size());
      Visit(stage.body, [&](const Expr& e) {
        const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
        if (read != nullptr) term += most_[static_cast<size_t>(read - program.stages.data())];
      });
      most_.push_back(term * static_cast<double>(Terms(static_cast<int>(most_.size()))));
    }
  }

  // As it is computed, not rounded to the tensor's type yet.
  Scalar Element(int index, int64_t offset) { return Part(index, offset, 0, Terms(index)); }

  // What a reduction makes of its terms number `begin` to `end`, of which there is one at least.
  Scalar Part(int index, int64_t offset, int64_t begin, int64_t end) {
    const Stage& stage = program_.stages[index];
    Frame& frame = frames_[index];
    SetAxes(stage.axes, offset, frame.axes.data());
    SetAxes(stage.reduce_axes, begin, frame.axes.data() + stage.axes.size());
    if (stage.combiner == Combiner::kSum && frame.program.product().has_value()) {
      return SumOfProducts(stage, frame, end - begin);
    }
    Scalar total = Run(frame);
    for (int64_t term = begin + 1; term < end; ++term) {
      ToNext(stage, frame.axes);
      total = Combined(stage.combiner, total, Run(frame));
    }
    return total;
  }

  int64_t Terms(int index) const { return ExtentOf(program_.stages[index].reduce_axes); }

  // Instructions of an element where nothing that it reads is known: no element takes more.
  double MostOf(int index) const { return most_[static_cast<size_t>(index)]; }

  // Instructions executed so far.
  int64_t operations() const { return operations_; }

 private:
  struct Frame {
    StageProgram program;
    std::vector<int64_t> axes;  // current values of axes, then reduction axes
    std::vector<Scalar> values;
    std::vector<int64_t> integers;
  };

  static void SetAxes(const std::vector<Var>& axes, int64_t number, int64_t* values) {
    for (size_t d = axes.size(); d-- > 0;) {
      values[d] = number % axes[d]->extent;
      number /= axes[d]->extent;
    }
  }

  static void ToNext(const Stage& stage, std::vector<int64_t>& axes) {
    for (size_t r = stage.reduce_axes.size(); r-- > 0;) {
      int64_t& value = axes[stage.axes.size() + r];
      if (++value < stage.reduce_axes[r]->extent) return;
      value = 0;
    }
  }

  // The same as term by term: of all that a sample costs most is this.
  Scalar SumOfProducts(const Stage& stage, Frame& frame, int64_t terms) {
    const StageProgram::Product& product = *frame.program.product();
    const auto inner = static_cast<int>(frame.axes.size()) - 1;
    const int64_t steps[] = {product.offsets[0].FactorOf(inner),
                             product.offsets[1].FactorOf(inner)};
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
          add(source_.Input(product.inputs[0], a).value *
              source_.Input(product.inputs[1], b).value);
        }
      }
      terms -= run;
      at += run - 1;
      ToNext(stage, frame.axes);
    }
    return total;
  }

  Scalar Run(Frame& frame) {
    operations_ += frame.program.size();
    return frame.program.Run(frame.axes.data(), frame.values.data(), frame.integers.data(),
                             [this](const TensorId& tensor, int64_t offset) {
                               return tensor.is_input ? source_.Input(tensor.index, offset)
                                                      : source_.Intermediate(tensor.index, offset);
                             });
  }

  const TensorProgram& program_;
  Source& source_;
  std::vector<Frame> frames_;
  std::vector<double> most_;
  int64_t operations_ = 0;
};

// ----------------------------------------------------------------------------- whole tensors

class WholeTensors : public Source {
 public:
  WholeTensors(const TensorProgram& program, const TensorValues& values) : program_(program) {
    for (const BufferRef& input : program.inputs) {
      inputs_.push_back(values.at(input->name).data());
    }
  }

  void AddStage(const std::vector<double>& elements) { stages_.push_back(elements.data()); }

  Scalar Input(int input, int64_t offset) override {
    return Exact(InMemory(program_.inputs[input]->dtype, inputs_[input][offset]));
  }
  Scalar Intermediate(int stage, int64_t offset) override { return Exact(stages_[stage][offset]); }

 private:
  const TensorProgram& program_;
  std::vector<const double*> inputs_;
  std::vector<const double*> stages_;
};

// ----------------------------------------------------------------------------------- samples

// Computes what is asked for, on so many threads where it takes long, and remembers what is worth
// remembering. What another one knows that does not change meanwhile is known here, too.
class OnDemand : public Source {
 public:
  OnDemand(const TensorProgram& program, const std::function<double(int, int64_t)>& input,
           int threads = 1, const OnDemand* known = nullptr)
      : program_(program),
        input_(input),
        threads_(threads),
        known_(known),
        evaluator_(program, *this),
        memory_(program.stages.size()),
        inputs_(program.inputs.size()) {
    for (const Stage& stage : program.stages) {
      bool reads_stages = false;
      Visit(stage.body, [&](const Expr& e) {
        reads_stages |= e->op == Op::kLoad && program.FindStage(e->buffer.get()) != nullptr;
      });
      remember_.push_back(stage.is_reduction() || reads_stages);
    }
  }

  Scalar Input(int input, int64_t offset) override {
    const std::vector<double>& kept = Kept()[static_cast<size_t>(input)];
    return Exact(kept.empty() ? Made(input, offset) : kept[static_cast<size_t>(offset)]);
  }

  const double* WholeInput(int input) const override {
    const std::vector<double>& kept = Kept()[static_cast<size_t>(input)];
    return kept.empty() ? nullptr : kept.data();
  }

  Scalar Intermediate(int stage, int64_t offset) override {
    return Converted(program_.stages[stage].tensor->dtype, Computed(stage, offset));
  }

  // As Evaluator::Element.
  Scalar Computed(int stage, int64_t offset) {
    if (!remember_[stage]) return evaluator_.Element(stage, offset);
    for (const OnDemand* source = this; source != nullptr; source = source->known_) {
      const auto known = source->memory_[stage].find(offset);
      if (known != source->memory_[stage].end()) return known->second;
    }
    const Scalar value = evaluator_.Terms(stage) > kParts ? InParts(stage, offset)
                                                          : evaluator_.Element(stage, offset);
    memory_[stage].emplace(offset, value);
    ++remembered_;
    return value;
  }

  void StartCluster() {
    if (remembered_ < kMostRemembered) return;
    for (auto& elements : memory_) elements.clear();
    remembered_ = 0;
  }

  // As if it had computed what `other` has, too, unless that is too much to remember.
  void Remember(const OnDemand& other) {
    if (remembered_ + other.remembered_ > kMostRemembered) return;
    for (size_t s = 0; s < memory_.size(); ++s) {
      memory_[s].insert(other.memory_[s].begin(), other.memory_[s].end());
    }
    remembered_ += other.remembered_;
  }

  int64_t operations() const { return evaluator_.operations() + operations_of_parts_; }

 private:
  double Made(int input, int64_t offset) const {
    return InMemory(program_.inputs[input]->dtype, input_(input, offset));
  }
  const std::vector<std::vector<double>>& Kept() const {
    return known_ != nullptr ? known_->Kept() : inputs_;
  }
  // Inputs of which each element is read many times over, as far as they are no more than
  // kMostKept.
  void KeepInputs() {
    size_t kept = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int64_t elements = program_.inputs[i]->elements;
      if (elements > static_cast<int64_t>(kMostKept - kept)) continue;
      kept += static_cast<size_t>(elements);
      for (int64_t offset = std::ssize(inputs_[i]); offset < elements; ++offset) {
        inputs_[i].push_back(Made(static_cast<int>(i), offset));
      }
    }
  }

  // Terms of a reduction from the second on, of which there are kParts at least.
  struct Terms {
    int64_t begin, end;
  };
  static Terms PartOf(int64_t terms, size_t number) {
    const int64_t whole = (terms - 1) / kParts, more = (terms - 1) % kParts;
    const auto begin_of = [&](int64_t p) { return 1 + whole * p + std::min(p, more); };
    const auto p = static_cast<int64_t>(number);
    return {begin_of(p), begin_of(p + 1)};
  }

  // Does another term take so long that all together are worth threads? Nothing of it is
  // remembered: what the first one needed is.
  bool IsLong(int stage, int64_t offset) const {
    if (known_ != nullptr || evaluator_.MostOf(stage) < kWorthParts) return false;
    OnDemand probe(program_, input_, 1, this);
    probe.evaluator_.Part(stage, offset, 1, 2);
    return static_cast<double>(probe.operations()) * static_cast<double>(evaluator_.Terms(stage)) >=
           kWorthParts;
  }

  // The terms of a reduction in parts that are added up one after the other, so that the result is
  // the same whether they are computed here or, where they are long, by threads, each of which
  // knows what the first term needed and no more.
  Scalar InParts(int stage, int64_t offset) {
    const int64_t terms = evaluator_.Terms(stage);
    std::vector<Scalar> results(static_cast<size_t>(kParts));
    Scalar total = evaluator_.Part(stage, offset, 0, 1);
    if (IsLong(stage, offset)) {
      OnThreads(stage, offset, results);
    } else {
      for (size_t p = 0; p < results.size(); ++p) {
        const Terms part = PartOf(terms, p);
        results[p] = evaluator_.Part(stage, offset, part.begin, part.end);
      }
    }
    for (const Scalar& part : results) {
      total = Combined(program_.stages[stage].combiner, total, part);
    }
    return total;
  }

  // Remembers what all of it together has computed, unless that is too much.
  void OnThreads(int stage, int64_t offset, std::vector<Scalar>& results) {
    KeepInputs();
    const int64_t terms = evaluator_.Terms(stage);
    std::vector<std::unique_ptr<OnDemand>> sources(results.size());
    std::atomic<int64_t> executed{0};
    std::atomic<size_t> remembered{remembered_};
    InParallel(results.size(), threads_, [&](std::atomic<size_t>& next) {
      for (size_t p = next++; p < results.size(); p = next++) {
        auto source = std::make_unique<OnDemand>(program_, input_, 1, this);
        const Terms part = PartOf(terms, p);
        results[p] = source->Forgetful(stage, offset, part.begin, part.end);
        executed += source->operations();
        remembered += source->remembered_;
        if (remembered <= kMostRemembered) sources[p] = std::move(source);
      }
    });
    operations_of_parts_ += executed;
    if (remembered > kMostRemembered) return;
    for (const auto& source : sources) Remember(*source);
  }

  // Forgets between terms what is too much to remember.
  Scalar Forgetful(int stage, int64_t offset, int64_t begin, int64_t end) {
    Scalar total = evaluator_.Part(stage, offset, begin, begin + 1);
    for (int64_t term = begin + 1; term < end; ++term) {
      StartCluster();
      total = Combined(program_.stages[stage].combiner, total,
                       evaluator_.Part(stage, offset, term, term + 1));
    }
    return total;
  }

  const TensorProgram& program_;
  const std::function<double(int, int64_t)>& input_;
  const int threads_;
  const OnDemand* const known_;
  int64_t operations_of_parts_ = 0;
  Evaluator evaluator_;
  std::vector<bool> remember_;
  std::vector<absl::flat_hash_map<int64_t, Scalar>> memory_;
  std::vector<std::vector<double>> inputs_;  // those that are kept, whole
  size_t remembered_ = 0;
};

// Finds the axes of an output on which intermediate reductions depend: points that agree in them
// share those reductions. Sets of axes are bit masks.
class SharedAxes {
 public:
  SharedAxes(const TensorProgram& program, const Stage& output) {
    for (size_t d = 0; d < output.axes.size(); ++d) depends_[output.axes[d].get()] = 1u << d;
    reached_.insert(&output);
    // Readers stand behind what they read: of each stage all readers are known when it is its turn,
    // however many ways lead to it.
    for (size_t s = program.stages.size(); s-- > 0;) {
      if (reached_.contains(&program.stages[s])) Follow(program, program.stages[s]);
    }
  }

  bool found() const { return found_; }
  uint32_t mask() const { return mask_; }

 private:
  void Follow(const TensorProgram& program, const Stage& stage) {
    Visit(stage.body, [&](const Expr& e) {
      const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
      if (read == nullptr) return;
      reached_.insert(read);
      for (size_t d = 0; d < read->axes.size(); ++d) {
        uint32_t axes = 0;
        Visit(e->args[d], [&](const Expr& part) {
          if (part->op != Op::kVar) return;
          const auto it = depends_.find(part->var.get());
          if (it != depends_.end()) axes |= it->second;
        });
        depends_[read->axes[d].get()] |= axes;
        if (read->is_reduction()) mask_ |= axes;
      }
      found_ |= read->is_reduction();
    });
  }

  // On which axes of the output each axis of the stages depends.
  std::map<const Variable*, uint32_t> depends_;
  std::set<const Stage*> reached_;
  uint32_t mask_ = 0;
  bool found_ = false;
};

// SplitMix64: the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  int64_t Below(int64_t bound) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<int64_t>((z ^ (z >> 31)) % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

using Cluster = std::vector<int64_t>;  // element offsets

// The coordinates of `offset` in the axes of `mask`, as one number.
int64_t KeyOf(const Stage& output, uint32_t mask, int64_t offset) {
  int64_t key = 0, factor = 1;
  for (size_t d = output.axes.size(); d-- > 0;) {
    const int64_t extent = output.axes[d]->extent;
    if ((mask >> d & 1) != 0) key += offset % extent * factor;
    if ((mask >> d & 1) != 0) factor *= extent;
    offset /= extent;
  }
  return key;
}

// All elements where there are no more than `count`; otherwise random ones, the first and the last
// element always among them.
std::vector<Cluster> ChoosePoints(const TensorProgram& program, const Stage& output, int64_t count,
                                  Random& random) {
  const SharedAxes shared(program, output);
  const uint32_t all = (1u << output.axes.size()) - 1;
  const bool share = shared.found() && shared.mask() != all;
  const uint32_t fixed = share ? shared.mask() : 0;
  const int64_t elements = output.tensor->elements;
  std::vector<Cluster> clusters;
  if (elements <= count) {
    std::map<std::pair<int64_t, int64_t>, Cluster> rows;
    for (int64_t offset = 0; offset < elements; ++offset) {
      rows[{KeyOf(output, fixed, offset), share ? 0 : offset / kClusterPoints}].push_back(offset);
    }
    for (auto& [key, cluster] : rows) clusters.push_back(std::move(cluster));
    return clusters;
  }
  const size_t rank = output.axes.size();
  for (int64_t done = 0; done < count; done += kClusterPoints) {
    Cluster cluster;
    std::vector<int64_t> point(rank, 0);
    const auto draw = [&](uint32_t mask) {
      for (size_t d = 0; d < rank; ++d) {
        if ((mask >> d & 1) != 0) point[d] = random.Below(output.axes[d]->extent);
      }
    };
    // The first cluster starts at the first element, the second at the last.
    const bool corner = done < 2 * kClusterPoints;
    for (size_t d = 0; d < rank && done == kClusterPoints; ++d) {
      point[d] = output.axes[d]->extent - 1;
    }
    if (!corner) draw(fixed);
    const int64_t points = std::min(kClusterPoints, count - done);
    while (static_cast<int64_t>(cluster.size()) < points) {
      if (!corner || !cluster.empty()) draw(all & ~fixed);
      int64_t offset = 0;
      for (size_t d = 0; d < rank; ++d) offset = offset * output.axes[d]->extent + point[d];
      cluster.push_back(offset);
    }
    clusters.push_back(std::move(cluster));
  }
  return clusters;
}

// Evaluates the points of one output.
class Sampler {
 public:
  Sampler(const TensorProgram& program, int stage, int output,
          const std::function<double(int, int64_t)>& input)
      : program_(program), stage_(stage), output_(output), input_(input) {}

  std::vector<SamplePoint> Run(std::vector<Cluster> clusters, int64_t max_operations,
                               int threads) const {
    Cluster first;
    for (Cluster& cluster : clusters) {
      const auto end = cluster.begin() +
                       static_cast<int64_t>(std::min(cluster.size(), kFewestPoints - first.size()));
      first.insert(first.end(), cluster.begin(), end);
      cluster.erase(cluster.begin(), end);
    }
    // The first points tell what others cost. Where that is much, each of the next knows what the
    // first one has computed and no more, whatever threads there are; and instructions are counted,
    // not time: so the choice of points is reproducible.
    OnDemand known(program_, input_, threads);
    std::vector<SamplePoint> all(first.size());
    all[0] = Evaluate(known, first[0]);
    const int64_t alone = known.operations();
    int64_t others = 0;
    if (alone < kWorthThreads) {
      for (size_t p = 1; p < first.size(); ++p) all[p] = Evaluate(known, first[p]);
      others = known.operations() - alone;
    } else {
      std::vector<std::unique_ptr<OnDemand>> sources(first.size());
      InParallel(first.size() - 1, threads, [&](std::atomic<size_t>& next) {
        for (size_t p = ++next; p < first.size(); p = ++next) {
          sources[p] = std::make_unique<OnDemand>(program_, input_);
          sources[p]->Remember(known);
          all[p] = Evaluate(*sources[p], first[p]);
        }
      });
      for (size_t p = 1; p < first.size(); ++p) {
        others += sources[p]->operations();
        known.Remember(*sources[p]);
      }
    }

    const int64_t another = others / std::max<int64_t>(1, std::ssize(first) - 1) + 1;
    int64_t left = max_operations - alone - others;
    size_t affordable = 0;
    for (; affordable < clusters.size(); ++affordable) {
      if (clusters[affordable].empty()) continue;
      left -= alone + another * std::ssize(clusters[affordable]);
      if (left < 0) break;
    }
    std::vector<std::vector<SamplePoint>> results(affordable);
    InParallel(affordable, threads, [&](std::atomic<size_t>& next) {
      OnDemand source(program_, input_);
      source.Remember(known);
      for (size_t c = next++; c < affordable; c = next++) {
        source.StartCluster();
        for (const int64_t offset : clusters[c]) results[c].push_back(Evaluate(source, offset));
      }
    });
    for (const auto& part : results) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

 private:
  SamplePoint Evaluate(OnDemand& source, int64_t offset) const {
    const Scalar result = AtLeastValue(source.Computed(stage_, offset));
    const DType type = program_.stages[stage_].tensor->dtype;
    return {output_, offset, InMemory(type, result.value), result.magnitude, result.exact};
  }

  const TensorProgram& program_;
  const int stage_;
  const int output_;
  const std::function<double(int, int64_t)>& input_;
};

}  // namespace

void EvaluateAll(const TensorProgram& program, TensorValues& values) {
  WholeTensors source(program, values);
  Evaluator evaluator(program, source);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    std::vector<double> elements(stage.tensor->elements);
    for (size_t offset = 0; offset < elements.size(); ++offset) {
      elements[offset] =
          InMemory(stage.tensor->dtype,
                   evaluator.Element(static_cast<int>(s), static_cast<int64_t>(offset)).value);
    }
    std::vector<double>& kept = values[stage.name()] = std::move(elements);
    source.AddStage(kept);
  }
}

std::vector<SamplePoint> EvaluateSamples(const TensorProgram& program,
                                         const std::function<double(int, int64_t)>& input,
                                         int64_t count, uint64_t seed, int64_t max_operations,
                                         int threads) {
  const auto outputs = std::count_if(program.stages.begin(), program.stages.end(),
                                     [](const Stage& stage) { return stage.is_output; });
  Random random(seed);
  std::vector<SamplePoint> points;
  int output = 0;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    if (!stage.is_output) continue;
    const std::vector<Cluster> clusters = ChoosePoints(program, stage, count, random);
    const std::vector<SamplePoint> own = Sampler(program, static_cast<int>(s), output++, input)
                                             .Run(clusters, max_operations / outputs, threads);
    points.insert(points.end(), own.begin(), own.end());
  }
  return points;
}

}  // namespace heddle::search_space
