"""Clock and watts beside the ratios of bench/versus.py and bench/h100, without a GPU: by a library that says them."""

import importlib.util
import sys
import time
import unittest
import unittest.mock
from importlib.machinery import SourceFileLoader

from support import SOURCE, Case


def loaded(name, file):
    loader = SourceFileLoader(name, str(SOURCE / "bench" / file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


sensors, h100 = loaded("sensors", "sensors.py"), loaded("h100", "h100")
BUS = "00000000:19:00.0"


class Library:
    """NVML of one device, whose clock comes down and which takes 700 W."""

    def __init__(self, energy=True):
        self.clocks, self.millijoules, self.energy = [1980, 1740, 1755], iter([5000, 75000]), energy
        self.asked = 0

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id, device):
        device._obj.value = 77
        return 0 if bus_id == BUS.encode() else 6  # NVML_ERROR_NOT_FOUND

    def nvmlDeviceGetClockInfo(self, device, clock, mhz):
        assert (device.value, clock) == (77, 1)
        mhz._obj.value = self.clocks[min(self.asked, 2)]
        self.asked += 1
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device, millijoules):
        assert device.value == 77
        if not self.energy:
            return 3  # NVML_ERROR_NOT_SUPPORTED
        millijoules._obj.value = next(self.millijoules)
        return 0


def watched(library, bus_id=BUS):
    with unittest.mock.patch.object(sensors.ctypes, "CDLL", return_value=library):
        found = sensors.Sensors(bus_id)
    clock = unittest.mock.Mock(monotonic=unittest.mock.Mock(side_effect=[10.0, 10.1]))
    with (
        unittest.mock.patch.object(sensors, "EVERY_S", 0),
        unittest.mock.patch.object(sensors, "time", clock),
        found.watch() as state,
    ):
        deadline = time.monotonic() + 60
        while found.why is None and library.asked < 5 and time.monotonic() < deadline:
            time.sleep(0.001)
    return found, state


class Clocks(unittest.TestCase):
    def test_they_are_of_the_whole_time(self):
        found, state = watched(Library())
        self.assertIsNone(found.why)
        self.assertEqual(state, {"sm_mhz": 1755, "least_sm_mhz": 1740, "watts": 700.0})

    def test_what_is_not_known_is_left_out(self):
        _, state = watched(Library(energy=False))
        self.assertEqual(sorted(state), ["least_sm_mhz", "sm_mhz"])
        found, state = watched(Library(), "00000000:1A:00.0")
        self.assertEqual((state, found.why), ({}, "nvmlDeviceGetHandleByPciBusId_v2: NVML error 6"))
        found = sensors.Sensors(BUS, "/no/libnvidia-ml.so.1")
        with found.watch() as state:
            pass
        self.assertEqual(state, {})
        self.assertIn("libnvidia-ml", found.why)


class Table(Case):
    def table(self, *runs):
        workload = h100.Workload(1, "matmul m=64,n=64,k=64 dtype=bfloat16", str(self.folder))
        (self.folder / "x").mkdir(exist_ok=True)
        workload.dir = str(self.folder / "x")
        trials = {"total": 10, "ok": 9}
        tuned = {"device": "H100", "trials": trials, "trials_per_second": 5.0, "seconds": 2.0}
        workload.save("tune.json", tuned | {"default_us": 3.0, "best_us": 2.0, "speedup": 1.5})
        for i, state in enumerate(runs, 1):
            row = {"ours_us": 2.0, "peer_us": 2.2, "peer": "eager", "ratio": 1.1, "failed": {}} | state
            workload.save(f"versus-{i}.json", {"ok": True, "warm": row, "cold": row | {"ratio": 1.2}})
        with unittest.mock.patch("builtins.print"):
            h100.table([workload], str(self.folder))
        lines = (self.folder / "results.md").read_text().splitlines()
        head, rule, row = ([c.strip() for c in line.strip("|").split("|")] for line in lines[-3:])
        self.assertEqual((len(head), len(rule)), (len(row), len(row)))
        return [list(pair) for pair in zip(head, row, strict=True)]

    def test_they_stand_beside_each_ratio(self):
        cells = self.table({"sm_mhz": 1755, "watts": 690.2}, {"sm_mhz": 1725, "watts": 695.8})
        state = [["MHz", "1740"], ["W", "693"]]
        at = cells.index(["ratio warm", "1.10"])
        self.assertEqual(cells[at + 2 : at + 4], state)
        at = cells.index(["ratio cold", "1.20"])
        self.assertEqual(cells[at + 2 : at + 4], state)

    def test_runs_from_before_have_none(self):
        self.assertEqual([c for c in self.table({}) if c[0] in ("MHz", "W")], [["MHz", "-"], ["W", "-"]] * 2)

    def test_a_row_without_comparison_is_as_long(self):
        self.assertEqual(dict(self.table())["runs"], "0")


if __name__ == "__main__":
    sys.exit(unittest.main())
