#include "server/api/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace heddle::server {
namespace {

constexpr int kBacklog = 1024;
// Each connection takes some 30 kB of gRPC's, so that their number is bounded where descriptors are
// not.
constexpr rlim_t kMostDescriptors = 32768;
// Left for the database, certificates, and the processes in which spaces are made.
constexpr rlim_t kReserved = 64;
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Descriptors below this one are for connections.
int FirstReserved() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  const rlim_t all = std::min(limit.rlim_cur, kMostDescriptors);
  return static_cast<int>(all - std::min(kReserved, all / 2));
}

absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path, const std::string& flag) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("unix:", path, ": the path of a socket has 1 to ", sizeof address.sun_path - 1,
                     " bytes; give another with ", flag));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

absl::Status CannotListen(const std::string& address, const std::string& flag) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", address, ": cannot listen there: ", std::strerror(errno)));
}

// A socket that listens on the address; -1, with errno, when it cannot.
int Listening(const addrinfo& a, int port) {
  const int fd = socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol);
  if (fd < 0) return -1;
  const int yes = 1, no = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes,
             sizeof yes);  // connections that ended hold no port
  // Those that are accepted have it, too: answers are smaller than a packet and wait for nothing.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  sockaddr_storage address = {};
  std::memcpy(&address, a.ai_addr, a.ai_addrlen);
  if (a.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);  // [::] is every address
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), a.ai_addrlen) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int PortOf(int listening) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

bool IsUnix(const std::string& address) { return absl::StartsWith(address, "unix:"); }

absl::Status CheckPort(const std::string& address, const std::string& flag) {
  Listener listener;
  listener.address_ = address;
  return listener.OpenPort(flag);
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& address,
                                                         const std::string& flag) {
  auto listener = std::unique_ptr<Listener>(new Listener());
  listener->address_ = address;
  HEDDLE_RETURN_IF_ERROR(IsUnix(address) ? listener->OpenSocket(flag) : listener->OpenPort(flag));
  return listener;
}

absl::Status Listener::OpenSocket(const std::string& flag) {
  const std::string path = address_.substr(std::strlen("unix:"));
  HEDDLE_ASSIGN_OR_RETURN(address, SocketAddress(path, flag));
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  const bool is_taken = connect(probe, at, sizeof address) == 0 || errno == EAGAIN;
  close(probe);
  if (is_taken) {
    return absl::UnavailableError(absl::StrCat("another server listens on ", address_,
                                               ": end it, or listen elsewhere with ", flag));
  }
  struct stat old;
  if (stat(path.c_str(), &old) == 0 && S_ISSOCK(old.st_mode)) unlink(path.c_str());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  listening_.push_back(fd);
  // The file that bind() makes has the socket's mode: from its first moment its owner's alone.
  fchmod(fd, 0600);
  if (bind(fd, at, sizeof address) != 0) return CannotListen(address_, flag);
  socket_path_ = path;
  return listen(fd, kBacklog) == 0 ? absl::OkStatus() : CannotListen(address_, flag);
}

absl::Status Listener::OpenPort(const std::string& flag) {
  const size_t colon = address_.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address_.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", address_, ": must be HOST:PORT, the port from 0 to 65535"));
  }
  std::string host = address_.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const int unknown = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (unknown != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " ", address_, ": \"", host, "\" is no address of this machine (",
        gai_strerror(unknown), "); name one, such as 127.0.0.1, localhost or 0.0.0.0"));
  }
  const absl::Cleanup free_it = [found] { freeaddrinfo(found); };
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = Listening(*a, port);
    if (fd >= 0) {
      listening_.push_back(fd);
      if (port == 0) port = PortOf(fd);
      continue;
    }
    error = errno;
    if (error != EADDRINUSE) continue;  // such as an address of IPv6 where the kernel has none
    return absl::UnavailableError(absl::StrCat(
        "port ", port, " of ", host,
        " is in use: end the program that listens there, or give another with ", flag));
  }
  errno = error;
  if (listening_.empty()) return CannotListen(address_, flag);
  address_ = absl::StrCat(address_.substr(0, colon), ":", port);
  return absl::OkStatus();
}

void Listener::Start(std::shared_ptr<ConnectionAcceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Run() {
  std::vector<pollfd> ready;
  for (const int fd : listening_) ready.push_back({fd, POLLIN, 0});
  ready.push_back({stopping_.fd(), POLLIN, 0});
  while (!stopping_.IsSet()) {
    if (poll(ready.data(), ready.size(), /*timeout=*/-1) < 0) continue;  // a signal
    for (const pollfd& one : ready) {
      if (one.fd == stopping_.fd() || one.revents == 0 || Accept(one.fd)) continue;
      stopping_.Wait(kPause);
    }
  }
}

bool Listener::Accept(int listening) {
  const int fd = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return true;
  // A new descriptor is the lowest that is free, so that its number tells how many are not.
  const bool is_full = fd < 0 || fd >= FirstReserved();
  if (is_full && !refuses_) {
    LogEvent(Severity::kWarning, "connections_refused",
             {{"address", address_},
              {"error", fd < 0 ? std::strerror(errno) : "too many connections are open"}});
  } else if (!is_full && refuses_) {
    LogEvent(Severity::kInfo, "connections_accepted", {{"address", address_}});
  }
  refuses_ = is_full;
  if (is_full) {
    if (fd >= 0) close(fd);
    return fd >= 0;
  }
  ConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listening;
  connection.fd = fd;
  acceptor_->HandleNewConnection(&connection);
  return true;
}

Listener::~Listener() {
  stopping_.Set();
  if (thread_.joinable()) thread_.join();
  for (const int fd : listening_) close(fd);
  if (!socket_path_.empty()) unlink(socket_path_.c_str());
}

}  // namespace heddle::server
