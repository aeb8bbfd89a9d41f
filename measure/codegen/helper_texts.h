// The files of helpers/, embedded by CMake.
#ifndef HEDDLE_MEASURE_CODEGEN_HELPER_TEXTS_H_
#define HEDDLE_MEASURE_CODEGEN_HELPER_TEXTS_H_

namespace heddle::measure {

// A helper, or several that belong together, stands below its heading, "//// NAME". Below several
// headings are as many helpers that differ in a few words: "//// NAME WORD..." gives $0 for the
// name, $1 for the word behind it and so on. $helper is the dialect's storage class. They are
// printed in the file's order.
extern const char kCudaHelpers[];
extern const char kOpenClHelpers[];

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_HELPER_TEXTS_H_
