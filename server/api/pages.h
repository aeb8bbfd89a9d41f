// Page tokens of the List calls (AIP-158): where the next page begins, and which request it is of.
#ifndef HEDDLE_SERVER_API_PAGES_H_
#define HEDDLE_SERVER_API_PAGES_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "server/engine/validate.h"

namespace heddle::server {

// Of `position` in what `request` lists; opaque to callers. `request` has a page_size, which may
// differ from page to page, and a page_token; everything else of it is in the token.
std::string PageToken(const google::protobuf::Message& request, const std::string& position);
// The position of the request's page_token, "" where it has none; InvalidArgument where that is
// none of ours or of another request.
absl::StatusOr<std::string> PagePosition(const google::protobuf::Message& request);
absl::Status WrongPageToken();

// The page of `all` that `request` asks for: `all` is ordered by `name`, which tells one from
// another, `add` takes them. The next page's token; "" on the last.
template <typename Request, typename Item, typename Name, typename Add>
absl::StatusOr<std::string> TakePage(const Request& request, std::vector<Item> all,
                                     const Name& name, const Add& add) {
  HEDDLE_ASSIGN_OR_RETURN(after, PagePosition(request));
  int left = PageSize(request.page_size());
  const std::string* last = nullptr;
  for (Item& item : all) {
    if (name(item) <= after) continue;
    if (left-- == 0) return PageToken(request, *last);
    last = &name(*add(std::move(item)));
  }
  return std::string();
}

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_PAGES_H_
