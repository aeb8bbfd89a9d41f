#include "base/process/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace heddle {
namespace {

// ------------------------------------------------------------------------------------ Landlock

// As of its sixth version; older kernels take the first so many bytes. The headers that
// distributions ship are older than the kernels that they run on.
struct Ruleset {
  uint64_t files, net, scoped;
};
constexpr uint64_t kTruncate = 1 << 14;                // version 3
constexpr uint64_t kScopes = (1 << 0) | (1 << 1);      // version 6: abstract sockets and signals
constexpr uint64_t kRefer = LANDLOCK_ACCESS_FS_REFER;  // version 2
constexpr uint64_t kRead =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kAll = (kRefer << 1) - 1;
// All that a rule for a file, rather than a folder, may name.
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                              LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
// Before the second version no file can be moved to another folder, as compilers do.
constexpr int kOldest = 2;

int LandlockVersion() {
  return static_cast<int>(
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
}

absl::Status Failed(const char* what) {
  return absl::InternalError(
      absl::StrCat("cannot confine the process: ", what, ": ", strerror(errno)));
}

absl::Status AddRules(int ruleset, const std::vector<std::string>& paths, uint64_t access) {
  for (const std::string& path : paths) {
    const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) continue;
    struct stat info {};
    const bool folder = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
    landlock_path_beneath_attr rule{};
    rule.allowed_access = folder ? access : access & kOfFiles;
    rule.parent_fd = fd;
    const long added =
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(fd);
    if (added != 0) return Failed(path.c_str());
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------- seccomp

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

// Newer than some headers.
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

// No driver or compiler has use for them once the device is open.
constexpr int kDenied[] = {
    // Other machines, and this one's services; io_uring could do the same unseen.
    SYS_socket,
    SYS_connect,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    // Other processes.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    // What is mounted where, and other namespaces.
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_unshare,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    // The kernel's large surfaces.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    // For administrators.
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_quotactl,
    SYS_acct,
    SYS_syslog,
    SYS_mknodat,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_mknod
    SYS_mknod,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
};
constexpr uint32_t kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                 CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

std::vector<sock_filter> MakeFilter() {
  std::vector<sock_filter> out;
  const auto load = [&](size_t offset) {
    out.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  };
  const auto refuse = [&](int error) {
    out.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)));
  };
  // Another instruction set has other numbers, and so have calls with the bit 30 (x32).
  load(offsetof(seccomp_data, arch));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  refuse(EPERM);
  load(offsetof(seccomp_data, nr));
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
  refuse(EPERM);
  for (int call : kDenied) {
    out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    refuse(EPERM);
  }
  // Its flags are in memory, where a filter cannot look: the C library then takes clone.
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
  refuse(ENOSYS);
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3));
  load(offsetof(seccomp_data, args));  // the lower half of the first: little endian
  out.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNamespaces, 0, 1));
  refuse(EPERM);
  out.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return out;
}

}  // namespace

absl::Status FindLandlock() {
  const int version = LandlockVersion();
  if (version >= kOldest) return absl::OkStatus();
  if (version >= 0) {
    return absl::UnavailableError(absl::StrCat("the kernel's Landlock is of version ", version,
                                               "; ", kOldest, " is needed (Linux 5.19)"));
  }
  return absl::UnavailableError(
      errno == ENOSYS ? "the kernel has no Landlock (Linux 5.19 with CONFIG_SECURITY_LANDLOCK)"
      : errno == EOPNOTSUPP
          ? "Landlock is switched off: `landlock` belongs into the kernel's parameter lsm="
          : absl::StrCat("Landlock is refused to this process: ", strerror(errno)));
}

absl::Status FindSeccomp() {
  if (kArchitecture == 0) {
    return absl::UnavailableError("this program has no seccomp filter for this processor");
  }
  uint32_t action = SECCOMP_RET_ERRNO;
  if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the kernel has no seccomp filters: ", strerror(errno)));
}

absl::Status RestrictFiles(const SandboxRules& rules) {
  HEDDLE_RETURN_IF_ERROR(FindLandlock());
  const int version = LandlockVersion();
  const uint64_t all = kAll | (version >= 3 ? kTruncate : 0);
  const Ruleset handled{all, 0, version >= 6 ? kScopes : 0};
  const size_t size = version >= 6 ? sizeof handled : offsetof(Ruleset, net);
  const int ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, size, 0));
  if (ruleset < 0) return Failed("landlock_create_ruleset");
  absl::Status status = AddRules(ruleset, rules.read, kRead);
  if (status.ok()) status = AddRules(ruleset, rules.write, all);
  if (status.ok() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) status = Failed("no_new_privs");
  if (status.ok() && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
    status = Failed("landlock_restrict_self");
  }
  close(ruleset);
  return status;
}

absl::Status RestrictCalls() {
  HEDDLE_RETURN_IF_ERROR(FindSeccomp());
  std::vector<sock_filter> filter = MakeFilter();
  const sock_fprog program{static_cast<uint16_t>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Failed("no_new_privs");
  // Not 0: the number of a thread that has a filter of its own.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    return Failed("seccomp");
  }
  return absl::OkStatus();
}

}  // namespace heddle
