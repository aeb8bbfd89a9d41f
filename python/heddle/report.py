"""What became of a model: which kernels it has, what is left to PyTorch, and how long each takes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Use:
    """A kernel of a report."""

    operator: str
    shape: dict[str, int]
    weight: int  # how many groups of the graph it computes
    match: str  # "exact", "nearest" or "default"
    time_us: float | None  # as it was tuned
    text: str = ""  # in tensor notation
    dtype: str = "float32"
    # Beside each other, of this model's tensors: where Inductor has the rest.
    ours_us: float | None = None
    inductor_us: float | None = None
    error: float | None = None  # against eager, relative to the largest element

    def __str__(self) -> str:
        shape = ",".join(f"{name}={value}" for name, value in self.shape.items())
        time = "not measured" if self.time_us is None else f"{self.time_us:.1f} us"
        if self.ours_us is not None:
            time = f"{self.ours_us:.1f} us, Inductor {self.inductor_us:.1f} us"
        dtype = "" if self.dtype == "float32" else f" {self.dtype}"
        return f"{self.weight} x {self.operator} {shape}{dtype}: {self.match}, {time}"


@dataclass
class Report:
    """What became of the graphs of a model."""

    uses: list[Use] = field(default_factory=list)
    slower: list[Use] = field(default_factory=list)  # kernels that Inductor is as fast as
    left: dict[str, str] = field(default_factory=dict)  # nodes or workloads that stay PyTorch's, and why
    largest_error: float | None = None  # against eager, relative to the largest result; where it was compared
    # Of all graphs together: as Inductor compiles them, what the kernels' times make of that, and as they are now.
    inductor_us: float = 0.0
    predicted_us: float = 0.0
    measured_us: float = 0.0
    # What took how long: "kernels" to be tuned and built, the "choice" of each, and the "whole" graphs, with kernels
    # and without, to be compiled and compared.
    seconds: dict[str, float] = field(default_factory=dict)

    def share(self, use: Use) -> float | None:
        """Of the model's time, that of a kernel."""
        return use.weight * use.ours_us / self.measured_us if use.ours_us and self.measured_us else None

    def __str__(self) -> str:
        lines = []
        for use in self.uses:
            share = self.share(use)
            lines.append(f"{use}" + ("" if share is None else f", {100 * share:.0f} % of the model"))
        lines += [f"Inductor's: {use}" for use in self.slower]
        lines += [f"PyTorch's: {what}: {why}" for what, why in self.left.items()]
        if self.measured_us:
            lines.append(
                f"the model: {self.measured_us:.1f} us, predicted {self.predicted_us:.1f} us, "
                f"Inductor alone {self.inductor_us:.1f} us"
            )
        if self.largest_error is not None:
            lines.append(f"largest difference from eager: {self.largest_error:.1e}")
        return "\n".join(lines)
