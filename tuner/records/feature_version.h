// Of the features that a record and a stored model name.
#ifndef HEDDLE_TUNER_RECORDS_FEATURE_VERSION_H_
#define HEDDLE_TUNER_RECORDS_FEATURE_VERSION_H_

namespace heddle::tuner {

// Bumped whenever the same program would get other numbers; part of every record's fingerprint and
// of every stored model.
inline constexpr int kFeatureVersion = 8;

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_FEATURE_VERSION_H_
