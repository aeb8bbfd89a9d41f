#include "cli/kube_api.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace heddle::cli {
namespace {

constexpr absl::Duration kCallLimit = absl::Seconds(30);
constexpr absl::Duration kMaxPatience = absl::Minutes(5);
constexpr int kConnectSeconds = 10;
constexpr size_t kMaxAnswer = size_t{64} << 20;  // bytes
constexpr size_t kMaxToken = 1 << 16;
// A watch ends by itself (timeoutSeconds), and is to be given up where the end got lost.
constexpr int kWatchSeconds = 300;

// How an answer that is no success reads as a status; `text` is a Status object, unless something
// between us and the server has answered.
absl::Status StatusOf(long code, const std::string& text) {
  const Json body = Json::parse(text, nullptr, false);
  const std::string why = TextAt(body, {"message"});
  const std::string message =
      absl::StrCat("Kubernetes answers ", code, why.empty() ? "" : ": ", why);
  switch (code) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(message);
    case 404:
      return absl::NotFoundError(message);
    case 409:
      return TextAt(body, {"reason"}) == "AlreadyExists" ? absl::AlreadyExistsError(message)
                                                         : absl::AbortedError(message);
    case 410:
      return absl::OutOfRangeError(message);
    case 400:
    case 413:
    case 422:
      return absl::InvalidArgumentError(message);
    case 408:
    case 429:
      return absl::UnavailableError(message);
    default:
      return code >= 500 ? absl::UnavailableError(message) : absl::FailedPreconditionError(message);
  }
}

bool IsSuccess(long code) { return code >= 200 && code < 300; }

using TakeBytes = std::function<bool(const char* bytes, size_t count)>;

size_t HandOut(char* bytes, size_t, size_t count, void* take) {
  return (*static_cast<const TakeBytes*>(take))(bytes, count) ? count : 0;
}

// Of the folder, for a server that must prove who it is; the fields with the token.
curl_slist* SetCredentials(CURL* easy, const std::string& folder, curl_slist* fields) {
  // Both are replaced while we run: a token lives for an hour.
  const std::string authority = folder + "/ca.crt";
  std::error_code error;
  if (std::filesystem::exists(authority, error)) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, authority.c_str());
  }
  const auto token = ReadTextFile(folder + "/token", kMaxToken);
  if (!token.ok()) return fields;
  return curl_slist_append(
      fields, absl::StrCat("Authorization: Bearer ", absl::StripAsciiWhitespace(*token)).c_str());
}

// What is the same for all calls, but for their limit.
void SetTransport(CURL* easy, absl::Duration limit) {
  // A watch has its connection alone: in HTTP/2 one that is dead would take other calls with it.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "heddle/" HEDDLE_VERSION);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 10L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(kConnectSeconds));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(limit)));
}

}  // namespace

const Json& At(const Json& object, std::initializer_list<const char*> path) {
  static const Json& none = *new Json();
  const Json* at = &object;
  for (const char* name : path) {
    if (!at->is_object()) return none;
    const auto found = at->find(name);
    if (found == at->end()) return none;
    at = &*found;
  }
  return *at;
}

std::string TextAt(const Json& object, std::initializer_list<const char*> path) {
  const Json& at = At(object, path);
  return at.is_string() ? at.get<std::string>() : "";
}

bool HasCondition(const Json& object, const char* type) {
  for (const Json& condition : At(object, {"status", "conditions"})) {
    if (TextAt(condition, {"type"}) == type && TextAt(condition, {"status"}) == "True") return true;
  }
  return false;
}

void KubeFlags::Add(CLI::App& app) {
  app.add_option("--kube-api", url,
                 "Kubernetes' API server, such as that of kubectl proxy [the pod's own cluster]")
      ->type_name("URL");
  app.add_option("--kube-credentials", credentials,
                 "the folder with token and ca.crt, which are shown to an https:// server")
      ->type_name("DIR")
      ->capture_default_str();
}

absl::Status KubeFlags::Settle() {
  // Before there are several threads that would.
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) return absl::InternalError(curl_easy_strerror(ready));
  if (url.empty()) {
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (host == nullptr || port == nullptr) {
      return absl::InvalidArgumentError(
          "this is no pod (KUBERNETES_SERVICE_HOST is not set): name the API server with "
          "--kube-api, such as http://127.0.0.1:8001 of kubectl proxy");
    }
    const bool is_v6 = absl::StrContains(host, ':');
    url = absl::StrCat("https://", is_v6 ? "[" : "", host, is_v6 ? "]:" : ":", port);
  }
  while (absl::EndsWith(url, "/")) url.pop_back();
  if (absl::StartsWith(url, "http://") || absl::StartsWith(url, "https://")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kube-api: '", url, "' must begin with https:// or http://"));
}

std::string QueryText(const std::map<std::string, std::string>& query) {
  std::string text;
  for (const auto& [name, value] : query) {
    absl::StrAppend(&text, text.empty() ? "?" : "&", name, "=");
    for (const char c : value) {
      if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~", c)) {
        text += c;
      } else {
        absl::StrAppendFormat(&text, "%%%02X", static_cast<unsigned char>(c));
      }
    }
  }
  return text;
}

KubeApi::KubeApi(KubeFlags flags, const StopSignal& stop)
    : flags_(std::move(flags)), stop_(stop), connections_(curl_multi_init(), curl_multi_cleanup) {}

KubeApi::~KubeApi() = default;

absl::StatusOr<KubeApi::Answer> KubeApi::Perform(const char* method, const std::string& path,
                                                 const std::string& body, absl::Duration limit,
                                                 const Take& take) {
  if (SteadyNow() < quiet_until_) {
    return absl::UnavailableError(absl::StrCat(
        "Kubernetes has asked for patience, for ",
        absl::FormatDuration(absl::Ceil(quiet_until_ - SteadyNow(), absl::Seconds(1))), " more"));
  }
  Answer answer;
  char reason[CURL_ERROR_SIZE] = "";  // outlives the call, which writes there
  const std::unique_ptr<CURL, void (*)(CURL*)> call(curl_easy_init(), curl_easy_cleanup);
  curl_slist* fields = curl_slist_append(nullptr, "Accept: application/json");
  if (!body.empty()) fields = curl_slist_append(fields, "Content-Type: application/json");
  CURL* easy = call.get();
  curl_easy_setopt(easy, CURLOPT_URL, (flags_.url + path).c_str());
  if (absl::StartsWith(flags_.url, "https://")) {
    fields = SetCredentials(easy, flags_.credentials, fields);
  }
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> owned(fields, curl_slist_free_all);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, fields);
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
  if (!body.empty()) {
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
    curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, body.c_str());
  }
  SetTransport(easy, limit);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, HandOut);
  const TakeBytes with_code = [&](const char* bytes, size_t count) {
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.code);
    return take(answer.code, bytes, count);
  };
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &with_code);

  CURLM* connections = connections_.get();
  curl_multi_add_handle(connections, easy);
  int running = 1;
  while (running > 0 && !stop_.IsSet()) {
    if (curl_multi_perform(connections, &running) != CURLM_OK) break;
    curl_waitfd stop{stop_.fd(), CURL_WAIT_POLLIN, 0};
    if (running > 0) curl_multi_poll(connections, &stop, 1, 1000, nullptr);
  }
  CURLcode result = CURLE_ABORTED_BY_CALLBACK;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(connections, &left)) {
    if (message->msg == CURLMSG_DONE) result = message->data.result;
  }
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.code);
  curl_off_t patience = 0;
  curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &patience);
  curl_multi_remove_handle(connections, easy);
  if (running > 0 && stop_.IsSet()) return absl::CancelledError("the server ends");
  if (patience > 0 && !IsSuccess(answer.code)) {
    quiet_until_ = SteadyNow() + std::min(absl::Seconds(patience), kMaxPatience);
  }
  if (result != CURLE_OK) {
    answer.error = reason[0] != 0 ? reason : curl_easy_strerror(result);
  }
  return answer;
}

absl::StatusOr<Json> KubeApi::Call(const char* method, const std::string& path, const Json& body) {
  std::string text;
  HEDDLE_ASSIGN_OR_RETURN(answer, Perform(method, path, body.is_null() ? "" : body.dump(),
                                          kCallLimit, [&](long, const char* bytes, size_t count) {
                                            text.append(bytes, count);
                                            return text.size() <= kMaxAnswer;
                                          }));
  if (!answer.error.empty()) {
    return absl::UnavailableError(
        absl::StrCat("Kubernetes does not answer (", flags_.url, "): ", answer.error));
  }
  if (!IsSuccess(answer.code)) return StatusOf(answer.code, text);
  Json object = Json::parse(text, nullptr, false);
  if (object.is_object()) return object;
  return absl::UnavailableError(absl::StrCat(flags_.url, " answers, but not as Kubernetes does"));
}

absl::Status KubeApi::Watch(const std::string& path,
                            const std::function<absl::Status(const Json&)>& event) {
  std::string text;
  absl::Status status;
  // Of an answer that is refused the text stays whole.
  const auto take_lines = [&] {
    size_t begin = 0;
    for (size_t end; status.ok() && (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const Json each = Json::parse(text.substr(begin, end - begin), nullptr, false);
      if (!each.is_object()) {
        status = absl::UnavailableError("a watch has told of something that is no event");
      } else if (TextAt(each, {"type"}) == "ERROR") {
        const Json &why = At(each, {"object"}), &code = At(why, {"code"});
        status = StatusOf(code.is_number_integer() ? code.get<long>() : 500, why.dump());
      } else {
        status = event(each);
      }
    }
    text.erase(0, begin);
  };
  const std::string timeout =
      absl::StrCat(absl::StrContains(path, '?') ? "&" : "?", "timeoutSeconds=", kWatchSeconds);
  auto answer = Perform("GET", path + timeout, "", absl::Seconds(kWatchSeconds) + kCallLimit,
                        [&](long code, const char* bytes, size_t count) {
                          text.append(bytes, count);
                          if (IsSuccess(code)) take_lines();
                          return status.ok() && text.size() <= kMaxAnswer;
                        });
  HEDDLE_RETURN_IF_ERROR(answer);
  HEDDLE_RETURN_IF_ERROR(status);
  if (IsSuccess(answer->code)) return absl::OkStatus();
  if (answer->code != 0) return StatusOf(answer->code, text);
  return absl::UnavailableError(
      absl::StrCat("Kubernetes does not answer (", flags_.url, "): ", answer->error));
}

}  // namespace heddle::cli
