#include "server/api/pages.h"

#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "server/db/convert.h"
#include "server/db/errors.h"

namespace heddle::server {
namespace {

const google::protobuf::FieldDescriptor* Field(const google::protobuf::Message& request,
                                               const char* name) {
  return request.GetDescriptor()->FindFieldByName(name);
}

// Eight bytes that say which list it is: the call, its filter, its view.
std::string ListOf(const google::protobuf::Message& request) {
  std::unique_ptr<google::protobuf::Message> list(request.New());
  list->CopyFrom(request);
  list->DiscardUnknownFields();
  for (const char* field : {"page_size", "page_token"}) {
    list->GetReflection()->ClearField(list.get(), Field(request, field));
  }
  const uint64_t hash = heddle::HashOf(list->GetTypeName() + CanonicalBytes(*list));
  std::string bytes(sizeof hash, '\0');
  std::memcpy(bytes.data(), &hash, sizeof hash);
  return bytes;
}

}  // namespace

std::string PageToken(const google::protobuf::Message& request, const std::string& position) {
  return absl::WebSafeBase64Escape(ListOf(request) + position);
}

absl::StatusOr<std::string> PagePosition(const google::protobuf::Message& request) {
  const std::string token =
      request.GetReflection()->GetString(request, Field(request, "page_token"));
  if (token.empty()) return std::string();
  const std::string list = ListOf(request);
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(token, &bytes) || bytes.size() <= list.size() ||
      bytes.compare(0, list.size(), list) != 0) {
    return WrongPageToken();
  }
  return bytes.substr(list.size());
}

absl::Status WrongPageToken() {
  return WrongField("page_token",
                    "must be the next_page_token of the page before, and everything but the "
                    "page_size must be as it was there");
}

}  // namespace heddle::server
