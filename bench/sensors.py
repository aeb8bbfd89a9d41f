"""The clock and the power of a GPU while something runs on it, by NVIDIA's management library.

    sensors = Sensors('00000000:19:00.0')
    with sensors.watch() as state: ...
    state  # {'sm_mhz': 1755, 'least_sm_mhz': 1740, 'watts': 689.5}; what is not known is left out

At 700 W the clock of an H100 is a result: a time means little without it.
"""
import contextlib
import ctypes
import statistics
import threading
import time

EVERY_S = 0.02  # how often the clock is read: in a thread of its own, 20 to 50 us each time
SM_CLOCK = 1  # NVML_CLOCK_SM


class Sensors:
    def __init__(self, pci_bus_id, library='libnvidia-ml.so.1'):
        """Without the library, or of a device that it does not know, nothing is known."""
        self.device, self.why = ctypes.c_void_p(), None
        try:
            self.nvml = ctypes.CDLL(library)
        except OSError as error:
            self.why = str(error)
            return
        for name, arguments in (('nvmlInit_v2', ()),
                                ('nvmlDeviceGetHandleByPciBusId_v2',
                                 (pci_bus_id.encode(), ctypes.byref(self.device)))):
            code = getattr(self.nvml, name)(*arguments)
            if code != 0:
                self.why = f'{name}: NVML error {code}'
                return

    def read(self, name, kind, *arguments):
        """A number of this device, or None."""
        value = kind()
        if self.why or getattr(self.nvml, name)(self.device, *arguments, ctypes.byref(value)) != 0:
            return None
        return value.value

    def sm_mhz(self): return self.read('nvmlDeviceGetClockInfo', ctypes.c_uint, SM_CLOCK)

    def joules(self):
        """Since the driver was loaded: a difference of them is of the whole time between, where
        the power that can be read is of the second before."""
        energy = self.read('nvmlDeviceGetTotalEnergyConsumption', ctypes.c_ulonglong)
        return None if energy is None else energy / 1000

    @contextlib.contextmanager
    def watch(self):
        """Of what runs inside: the median and the least clock, the mean power; known behind it."""
        state, clocks, done = {}, [], threading.Event()

        def sample():
            while True:
                clocks.append(self.sm_mhz())
                if done.wait(EVERY_S): return

        thread = threading.Thread(target=sample, daemon=True)
        before, start = self.joules(), time.monotonic()
        thread.start()
        try:
            yield state
        finally:
            done.set()
            thread.join()
            after, end = self.joules(), time.monotonic()
            read = [mhz for mhz in clocks if mhz is not None]
            if read: state.update(sm_mhz=round(statistics.median(read)), least_sm_mhz=min(read))
            if before is not None and after is not None:
                state['watts'] = round((after - before) / (end - start), 1)
