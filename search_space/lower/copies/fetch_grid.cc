#include "search_space/lower/copies/fetch_grid.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/copies/fetch.h"

namespace heddle::search_space {
namespace {

// Trips that whole rows may cost, over those that a dense grid needs.
constexpr double kMostTrips = 1.34;

// Axes [first, n) make a row of `width` accesses; a trip takes `rows` of them, or a row `parts`
// trips.
struct Rows {
  size_t first = 0;
  int64_t width = 0, rows = 1, parts = 1, trips = 0;
};

// Does a dense grid split the threads of a trip at every row's end?
bool IsAligned(const std::vector<int64_t>& extent, int64_t chunk) {
  int64_t inner = 1;
  for (size_t d = extent.size(); d-- > 1;) {
    inner *= extent[d];
    if (chunk % inner != 0 && inner % chunk != 0) return false;
  }
  return true;
}

// The widest rows whose addresses are linear in the trip, at an acceptable number of trips; trips
// is 0 when there are none.
Rows ChooseRows(const std::vector<int64_t>& extent, int64_t threads, int64_t vector) {
  int64_t total = 1;
  for (int64_t e : extent) total *= e;
  const auto most =
      static_cast<int64_t>(static_cast<double>(CeilDiv(total, threads * vector)) * kMostTrips);
  Rows best;
  int64_t inner = 1;
  for (size_t d = extent.size(); d-- > 1;) {
    inner *= extent[d];
    if (inner % vector != 0) continue;
    Rows r{.first = d, .width = inner / vector};
    const int64_t outer = total / inner;
    r.rows = std::clamp<int64_t>(threads / r.width, 1, outer);
    r.parts = CeilDiv(r.width, threads);
    r.trips = CeilDiv(outer, r.rows) * r.parts;
    // Several rows at once advance along one axis, which they divide unless it is all there is;
    // a row of several trips is one axis.
    const bool linear = r.parts > 1
                            ? inner == extent[d]
                            : r.rows == 1 || extent[d - 1] == outer || extent[d - 1] % r.rows == 0;
    if (linear && r.trips <= most && (best.trips == 0 || r.trips <= best.trips)) best = r;
  }
  return best;
}

// Null where the condition always holds.
Expr UnlessTrue(const Expr& condition) { return condition->op == Op::kInt ? nullptr : condition; }

std::vector<int64_t> Strides(const std::vector<int64_t>& extent) {
  std::vector<int64_t> strides(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) strides[d - 1] = strides[d] * extent[d];
  return strides;
}

}  // namespace

int64_t FetchTrips(const std::vector<int64_t>& extent, int64_t threads, int64_t vector) {
  int64_t total = 1;
  for (int64_t e : extent) total *= e;
  if (!IsAligned(extent, threads * vector)) {
    const Rows rows = ChooseRows(extent, threads, vector);
    if (rows.trips > 0) return rows.trips;
  }
  return CeilDiv(total, threads * vector);
}

FetchGrid MakeFetchGrid(const ScheduledStage& stage, const Var& thread) {
  const int64_t threads = stage.Note<Fetch>()->threads, vector = stage.Note<Fetch>()->vector;
  const std::vector<int64_t>& extent = stage.extent;
  const std::vector<int64_t> strides = Strides(extent);
  const int64_t total = strides[0] * extent[0];
  FetchGrid grid;
  grid.trip = MakeVar(absl::StrCat(stage.name(), ".e"), FetchTrips(extent, threads, vector));
  grid.lane = MakeVar(absl::StrCat(stage.name(), ".v"), vector);
  const Expr e = VarExpr(grid.trip), t = VarExpr(thread), v = VarExpr(grid.lane);
  const Rows rows =
      IsAligned(extent, threads * vector) ? Rows{} : ChooseRows(extent, threads, vector);
  // Element number within the region, or within a row of it.
  grid.whole_rows = rows.trips > 0;
  Expr element = Simplify((e * Int(threads) + t) * Int(vector) + v), row;
  if (rows.trips > 0) {
    const Expr part = e % Int(rows.parts);
    const Expr access = rows.parts > 1 ? part * Int(threads) + t : t % Int(rows.width);
    row = Simplify(e / Int(rows.parts) * Int(rows.rows) +
                   (rows.parts > 1 ? Int(0) : t / Int(rows.width)));
    element = Simplify(access * Int(vector) + v);
    const int64_t outer = total / (rows.width * vector);
    const Expr in_row = rows.parts > 1 ? Simplify(access < Int(rows.width))
                                       : Simplify(t < Int(rows.rows * rows.width));
    (rows.parts > 1 ? grid.guard : grid.thread_guard) = UnlessTrue(in_row);
    const Expr exists = Simplify(row < Int(outer));
    if (!Proves({in_row}, exists)) grid.guard = AndAlso(grid.guard, exists);
  } else if (total % (threads * vector) != 0) {
    grid.guard = Simplify(element < Int(total));
  }
  for (size_t i = 0; i < extent.size(); ++i) {
    const bool outside = rows.trips > 0 && i < rows.first;
    const Expr from = outside ? row : element;
    const int64_t stride = outside ? strides[i] / (rows.width * vector) : strides[i];
    const bool outermost = i == 0 || (rows.trips > 0 && i == rows.first);
    const Expr p = from / Int(stride);
    grid.position.push_back(Simplify(outermost ? p : p % Int(extent[i])));
  }
  return grid;
}

}  // namespace heddle::search_space
