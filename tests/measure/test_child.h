// A child process that behaves as a test wants: Subprocess::Start(kTestChild, {BEHAVIOUR}).
#ifndef HEDDLE_TESTS_MEASURE_TEST_CHILD_H_
#define HEDDLE_TESTS_MEASURE_TEST_CHILD_H_

namespace heddle::measure {

inline constexpr char kTestChild[] = "__test_child";

// Behaviours: "echo" sends back what it gets; "look" answers with the inherited descriptors that
// can be read; "hang" reports and never ends, whatever the signal; "crash" writes to standard error
// and dies by SIGSEGV; "exit" ends with code 7; "chatter" writes a megabyte and reports; "family"
// starts a process of its own in its group and reports that one's id; "supervise" takes the lock of
// the device "test:0", starts a "hang" child that inherits it and reports that one's id; "confined
// FOLDER FILE" confines itself to the folder and reports, as the message, what is not as it should
// be then. A report
// is a worker::Status whose code is a process id, or 0.
int TestChildMain(int argc, char** argv);

}  // namespace heddle::measure

#endif  // HEDDLE_TESTS_MEASURE_TEST_CHILD_H_
