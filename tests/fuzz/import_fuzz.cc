// Any lines: importing them refuses each alone or adds it, never damages the database, and what was
// added is exported as lines that a second import knows.
#include <stdlib.h>

#include <memory>
#include <sstream>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"

using heddle::tests::Hold;
using heddle::tuner::Records;

namespace {

// In memory where the system has such a folder: a commit is a flush.
std::unique_ptr<Records> OpenNew() {
  std::string folder = "/dev/shm/heddle-fuzz.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    folder = "/tmp/heddle-fuzz.XXXXXX";
    Hold(mkdtemp(folder.data()) != nullptr, "no folder for the database");
  }
  auto records = Records::Open(folder + "/fuzz.db");
  Hold(records.ok(), records.status().ToString());
  static std::string remove;
  remove = "rm -rf " + folder;
  atexit([] { Hold(system(remove.c_str()) == 0, remove); });  // NOLINT(cert-env33-c)
  return *std::move(records);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Records* records = OpenNew().release();
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto line = heddle::tuner::ParseLine(text);
  if (line.ok()) {
    const std::string printed = heddle::tuner::PrintLine(*line);
    auto again = heddle::tuner::ParseLine(printed);
    Hold(again.ok(), "its own line is refused: " + printed);
    Hold(heddle::tuner::PrintLine(*again) == printed, "its own line changes: " + printed);
  }
  std::istringstream first(text), second(text);
  auto report = records->Import(first);
  Hold(report.ok(), report.status().ToString());
  auto same = records->Import(second);
  Hold(same.ok(), same.status().ToString());
  Hold(same->added == 0, "the same lines were added twice: " + text);
  Hold(same->duplicate == report->added + report->duplicate && same->refused == report->refused,
       "the same lines were judged otherwise: " + text);
  Hold(records->damage().empty(), records->damage());
  return 0;
}
