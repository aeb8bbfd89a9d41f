// Processes between two measurers.
#ifndef HEDDLE_MEASURE_RUN_PROCESSES_KEPT_PROCESSES_H_
#define HEDDLE_MEASURE_RUN_PROCESSES_KEPT_PROCESSES_H_

#include <memory>
#include <string>

namespace heddle::measure {

struct Processes;

// What a measurer leaves to the next one on the same device: its compilers, which have loaded what
// they compile with, and its worker, which has opened the device. It holds the device meanwhile.
class KeptProcesses {
 public:
  KeptProcesses();
  ~KeptProcesses();

  // nullptr where none are kept, or those of another device or with other options are: these end.
  std::unique_ptr<Processes> Take(const std::string& device, int compilers);
  void Keep(std::unique_ptr<Processes> processes);

 private:
  std::unique_ptr<Processes> processes_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PROCESSES_KEPT_PROCESSES_H_
