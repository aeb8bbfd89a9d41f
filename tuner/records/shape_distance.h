// How far shapes of an operator are from each other.
#ifndef HEDDLE_TUNER_RECORDS_SHAPE_DISTANCE_H_
#define HEDDLE_TUNER_RECORDS_SHAPE_DISTANCE_H_

#include <cstdint>
#include <map>
#include <string>

namespace heddle::tuner {

// Doublings over all parameters; infinity where a parameter of the first is none of the second.
double Distance(const std::map<std::string, int64_t>& a, const std::map<std::string, int64_t>& b);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_SHAPE_DISTANCE_H_
