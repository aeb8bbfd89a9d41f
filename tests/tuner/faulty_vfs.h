// A file system for SQLite that fails, or ends the process, at a chosen write.
#ifndef HEDDLE_TESTS_TUNER_FAULTY_VFS_H_
#define HEDDLE_TESTS_TUNER_FAULTY_VFS_H_

namespace heddle::tuner {

// While it lives, connections that are opened go through it; they must not outlive it.
class FaultyVfs {
 public:
  FaultyVfs();
  ~FaultyVfs();

  // After `writes` more writes or syncs that work, every further one fails with `code` (such as
  // SQLITE_FULL), until Heal.
  void FailAfter(int writes, int code);
  // After `writes` more writes or syncs the process ends at once; the last one writes only half.
  void ExitAfter(int writes);
  void Heal();
  // Writes and syncs since it was made.
  int writes() const;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TESTS_TUNER_FAULTY_VFS_H_
