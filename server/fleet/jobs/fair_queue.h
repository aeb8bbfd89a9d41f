// Whose turn it is among those who wait for the same thing.
#ifndef HEDDLE_SERVER_FLEET_JOBS_FAIR_QUEUE_H_
#define HEDDLE_SERVER_FLEET_JOBS_FAIR_QUEUE_H_

#include <map>
#include <string>
#include <vector>

namespace heddle::server {

// Deficit round robin (M. Shreedhar and G. Varghese, Efficient fair queuing using deficit round
// robin, SIGCOMM 1995), paid for as it is used: of those that wait all get the same amount over
// time, whatever one turn costs them and however often they ask. Not thread-safe.
class FairQueue {
 public:
  // `quantum`: what each gets in a round, in the unit of costs.
  explicit FairQueue(double quantum) : quantum_(quantum) {}

  // Whose turn it is of `waiting`, which is not empty. Who does not wait saves nothing up.
  std::string Next(const std::vector<std::string>& waiting);
  // Whether more is left of the share of the round.
  bool HasCredit(const std::string& name) const;
  // For what was given, in advance where the true cost is known later; negative: paid back.
  void Charge(const std::string& name, double cost) { credit_[name] -= cost; }

 private:
  const double quantum_;
  std::map<std::string, double> credit_;
  std::string last_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_FAIR_QUEUE_H_
