#include "server/engine/spaces.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "measure/run/processes/messages.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "server/db/convert.h"
#include "tuner/artefact/query.h"
#include "tuner/search/default_point.h"

namespace heddle::server {
namespace {

constexpr char kSpaceCommand[] = "__space";
constexpr absl::Duration kSending = absl::Seconds(10);
// A process that has grown beyond this answers and ends.
constexpr int64_t kMaxKeptKilobytes = 256 << 10;

using searcher::SpaceAnswer;
using searcher::SpaceQuestion;

// ------------------------------------------------------------------------------ in the process

absl::StatusOr<SpaceAnswer> Work(const SpaceQuestion& question) {
  HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(question.workload()));
  const auto workload = std::make_shared<const search_space::TensorProgram>(std::move(program));
  const measure::DeviceInfo device = measure::FromProto(question.device());
  const tuner::Fallback fallback = FromProto(question.fallback());
  SpaceAnswer answer;
  if (fallback == tuner::Fallback::kNone) {
    HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(workload, device.target));
    answer.set_points(space.point_count());
    return answer;
  }
  std::unique_ptr<tuner::Records> records;
  if (fallback == tuner::Fallback::kNearest) {
    HEDDLE_ASSIGN_OR_RETURN(opened, tuner::Records::Open(question.database()));
    records = std::move(opened);
  }
  const tuner::Bench bench = tuner::BenchOf(device, FromProto(question.l2()));
  HEDDLE_ASSIGN_OR_RETURN(found,
                          tuner::FallBack(fallback, workload, device.target, bench, records.get()));
  answer.set_match(ToProto(found.match));
  answer.set_steps(found.steps);
  if (found.source) {
    v1::WorkloadKey key;
    key.set_hash(found.source->trial.workload_hash);
    *answer.mutable_source() = ToProto(*found.source, key);
  }
  return answer;
}

}  // namespace

std::optional<int> RunSpaceCommand(int argc, char** argv) {
  if (argc < 4 || argv[1] != std::string(kSpaceCommand)) return std::nullopt;
  EnterChild(argc, argv);
  size_t bytes = 0;
  if (!absl::SimpleAtoi(argv[3], &bytes)) return 1;
  LimitMemory(bytes);
  SpaceQuestion question;
  while (ReceiveFromSupervisor(question).ok()) {
    absl::StatusOr<SpaceAnswer> worked = Work(question);
    SpaceAnswer answer;
    if (worked.ok()) {
      answer = *std::move(worked);
    } else {
      answer.set_code(static_cast<int>(worked.status().code()));
      answer.set_error(std::string(worked.status().message()));
    }
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    answer.set_last(used.ru_maxrss > kMaxKeptKilobytes);
    if (!SendToSupervisor(answer).ok() || answer.last()) break;
  }
  return 0;
}

// ------------------------------------------------------------------------------ in the server

std::unique_ptr<Subprocess> Spaces::TakeIdle() {
  absl::MutexLock lock(&mutex_);
  return std::move(idle_);
}

absl::StatusOr<SpaceAnswer> Spaces::AskProcess(const SpaceQuestion& question) {
  std::unique_ptr<Subprocess> process = TakeIdle();
  const bool kept = process != nullptr;
  if (!kept) {
    HEDDLE_ASSIGN_OR_RETURN(
        started, Subprocess::Start(kSpaceCommand, {absl::StrCat(options_.memory_bytes)}));
    process = std::move(started);
  }
  SpaceAnswer answer;
  absl::Status status = process->Send(question, SteadyNow() + kSending);
  // One that was kept may have ended meanwhile, which is not the question's fault.
  if (!status.ok() && kept) return AskProcess(question);
  if (status.ok()) status = process->ReceiveWithin(answer, options_.time);
  if (status.ok()) {
    if (!answer.last()) {
      absl::MutexLock lock(&mutex_);
      if (idle_ == nullptr) idle_ = std::move(process);
    }
    if (answer.code() == 0) return answer;
    return absl::Status(static_cast<absl::StatusCode>(answer.code()), answer.error());
  }
  const bool late = absl::IsDeadlineExceeded(status);
  const auto exit = process->End();
  if (!late && !(exit.ok() && exit->code == kOutOfMemoryCode)) {
    return absl::UnavailableError(
        absl::StrCat("the process that makes its search space ended: ",
                     exit.ok() ? exit->Describe() : std::string(exit.status().message())));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "its search space takes more than ",
      late ? absl::FormatDuration(options_.time)
           : absl::StrCat(options_.memory_bytes >> 20, " MiB"),
      " to make, which is the limit: write the operator with fewer stages, reads or selects"));
}

absl::StatusOr<SpaceAnswer> Spaces::Ask(const SpaceQuestion& question) {
  if (FromProto(question.fallback()) == tuner::Fallback::kNearest) return AskProcess(question);
  const std::string key = question.SerializeAsString();
  if (auto known = answers_.Find(key)) return *std::move(known);
  absl::StatusOr<SpaceAnswer> answer = AskProcess(question);
  if (absl::IsUnavailable(answer.status())) return answer;
  answers_.Add(key, answer,
               answer.ok() ? answer->SpaceUsedLong() : answer.status().message().size());
  return answer;
}

}  // namespace heddle::server
