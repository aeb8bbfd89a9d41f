// Which host this is.
#ifndef HEDDLE_BASE_HOST_H_
#define HEDDLE_BASE_HOST_H_

#include <string>

namespace heddle {

// What names this host among others: $HEDDLE_HOST, by which who starts a container says on which it
// is; the word in that file; or, where there is none or it is not set yet, the host's name and its
// boot, which is another one after a reboot. At most 64 letters, digits and '-', which takes the
// place of '.'.
std::string HostId(const std::string& machine_id_file = "/etc/machine-id");
std::string HostName();
// Of the boot that the host runs since.
std::string BootId();

// How many threads of this process can run at once, at least 1: the processors it may run on, or
// fewer where the time of its control group is limited (cgroup v2's cpu.max, of the group or of one
// that it is in), rounded up. `groups` is where control groups are mounted, `own` what names this
// process's.
int UsableCores(const std::string& groups = "/sys/fs/cgroup",
                const std::string& own = "/proc/self/cgroup");

}  // namespace heddle

#endif  // HEDDLE_BASE_HOST_H_
