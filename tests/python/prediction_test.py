"""What heddle.optimize predicts of a model's time."""

import random
import unittest

from support import Case

from heddle._prediction import predicted


class Prediction(Case):
    def test_parts_that_fit_into_the_whole(self):
        self.assertEqual(predicted(100, [(10, 30), (5, 20)], [25]), 65)
        self.assertEqual(predicted(100, [], []), 100)

    def test_parts_that_exceed_the_whole_are_shares_of_it(self):
        # As much as two wholes: each counts half, the part that stays too.
        self.assertEqual(predicted(100, [(20, 80), (40, 60)], [60]), 100 - 0.5 * 80)
        # Nothing but what is replaced, by kernels that take half as long.
        self.assertAlmostEqual(predicted(100, [(150, 300), (50, 100)], []), 50)

    def test_no_saving_is_negative(self):
        self.assertEqual(predicted(100, [(50, 30)], []), 100)
        self.assertEqual(predicted(100, [(50, 30), (10, 40)], []), 90)

    def test_it_is_a_time_and_no_longer_than_the_whole(self):
        seed = random.randrange(2**32)
        rng = random.Random(seed)
        for _ in range(10_000):
            whole = rng.uniform(0.01, 1e3)
            replaced = []
            for _ in range(rng.randrange(1, 40)):
                theirs = rng.uniform(0.01, 100)
                replaced.append((rng.uniform(0.01, 0.98) * theirs, theirs))
            kept = [rng.uniform(0.01, 100) for _ in range(rng.randrange(10))]
            time = predicted(whole, replaced, kept)
            # No more is saved than the best of the kernels saves of its part.
            least = min(ours / theirs for ours, theirs in replaced)
            self.assertGreaterEqual(time, whole * least * (1 - 1e-9), f"seed {seed}")
            self.assertLess(time, whole * (1 + 1e-9), f"seed {seed}")
            # A kernel that is slower makes it longer; another part that stays Inductor's leaves less to be saved.
            (ours, theirs), *others = replaced
            self.assertGreater(predicted(whole, [(ours + 1, theirs), *others], kept), time, f"seed {seed}")
            self.assertGreaterEqual(predicted(whole, replaced, [*kept, 50]), time * (1 - 1e-9), f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
