// What a session waits for before its first check: inputs are chosen and samples of the outputs
// evaluated on the host, on all its cores. Rows of bench/suites that take longest; run it in the
// repository's root.
#include <benchmark/benchmark.h>

#include <string>

#include "base/files.h"
#include "bench/must_be.h"
#include "measure/judge/inputs.h"
#include "search_space/notation/notation.h"

namespace heddle {
namespace {

struct Row {
  const char* suite;
  const char* op;
  const char* shape;
  search_space::DType type;
};
constexpr Row kRows[] = {
    {"wayfarers", "soft_moe", "b=32,s=196,d=384,e=64,p=3,f=1536", search_space::DType::kBFloat16},
    {"wayfarers", "snapkv_votes", "g=32,h=4,w=32,t=8192,d=128", search_space::DType::kBFloat16},
    {"wayfarers", "ccsd_triples_energy", "b=24,v=80", search_space::DType::kFloat32},
    {"visitors", "softcap_cross_entropy", "m=1024,v=32003,k=1536", search_space::DType::kBFloat16},
    {"guests", "siglip_loss", "n=4096,k=1152", search_space::DType::kBFloat16},
    {"settlers", "gcn_layer", "n=50000,e=500000,f=128,o=64", search_space::DType::kFloat32},
    {"voyagers", "red_black_sor", "n=257", search_space::DType::kFloat32},
};

void ChooseInputs(benchmark::State& state, const Row& row) {
  const std::string file = std::string("bench/suites/") + row.suite + ".op";
  const auto operators =
      MustBe(search_space::ParseOperators(MustBe(ReadTextFile(file, int64_t{1} << 20))));
  const auto op = MustBe(search_space::FindOperator(operators, row.op));
  const auto program =
      MustBe(op.Instantiate(MustBe(search_space::ParseShape(row.shape)), row.type));
  size_t samples = 0;
  for (auto _ : state) {
    samples = MustBe(measure::Inputs(program, 1).Choose()).front().samples.size();
  }
  state.counters["samples"] = static_cast<double>(samples);
}

void Register() {
  for (const Row& row : kRows) {
    benchmark::RegisterBenchmark((std::string("ChooseInputs/") + row.op).c_str(), ChooseInputs, row)
        ->Unit(benchmark::kMillisecond)
        ->Iterations(1)
        ->UseRealTime();
  }
}
const bool registered = (Register(), true);

}  // namespace
}  // namespace heddle
