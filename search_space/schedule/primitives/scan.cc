#include "search_space/schedule/primitives/scan.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/scan.h"

namespace heddle::search_space {

absl::Status ScanChunks::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, [&](const Schedule& schedule, int index) {
    return ScanStages(schedule, index, chunk);
  });
}

}  // namespace heddle::search_space
