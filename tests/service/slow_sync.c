/* Loaded before libc (LD_PRELOAD): every fsync and fdatasync takes as many milliseconds longer as
   the file $HEDDLE_SYNC_DELAY_MS says, which may change at any time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void Delay(void) {
  const char* path = getenv("HEDDLE_SYNC_DELAY_MS");
  long ms = 0;
  FILE* file = path ? fopen(path, "r") : NULL;
  if (file == NULL) return;
  if (fscanf(file, "%ld", &ms) != 1) ms = 0;
  fclose(file);
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  if (ms > 0) nanosleep(&pause, NULL);
}

int fsync(int fd) {
  Delay();
  return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
  Delay();
  return (int)syscall(SYS_fdatasync, fd);
}
