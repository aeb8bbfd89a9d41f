"""What a model takes with kernels in the place of parts of it."""

from __future__ import annotations

from collections.abc import Sequence


def predicted(whole: float, replaced: Sequence[tuple[float, float]], kept: Sequence[float]) -> float:
    """Microseconds of a graph that a compiler runs in `whole`. `replaced`: of parts of it the kernels' time and the
    compiler's, each by itself; `kept`: the compiler's of further parts.

    By themselves, from an empty cache and with nothing beside them, parts take longer than in the whole, which they may
    exceed together: then each is its share of the whole. So the result is what is left of the whole, and the kernels'
    times on the same scale, none of which is negative; and no more than the whole, as what saves nothing is not taken.
    """
    alone = sum(theirs for _, theirs in replaced) + sum(kept)
    scale = min(1.0, whole / alone) if alone > 0 else 1.0
    left = max(whole - scale * sum(theirs for _, theirs in replaced), 0.0)
    return min(left + scale * sum(ours for ours, _ in replaced), whole)
