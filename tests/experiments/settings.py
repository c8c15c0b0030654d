"""The rows of the experiments' table: what each one sets, and what it must
hold. Used by compare.py (which trains them) and judge.py (which judges them).
"""
import dataclasses

PLAIN = {"up": "fp32", "down": "fp32"}
AVERAGE = {"rule": "sgd", "lr": 1.0, "momentum": 0}
BASELINES = ("alone", "synchronous")


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a row's figure must be at most (at least, when `least`)."""
    figure: str  # "G", "waits", or "loss": relative to `base`, paired.
    bound: float
    base: str = ""
    least: bool = False
    either: bool = False  # In both directions.

    def text(self):
        name = f"|loss/{self.base} - 1|" if self.either else (
            f"loss/{self.base} - 1" if self.base else self.figure)
        return f"{name} {'>=' if self.least else '<='} {self.bound:g}"


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sections of the run file that differ from `diloco`, flags of simulate,
    and the limits. `spoils`: a planted mistake, which must break a limit of the
    setting that it spoils."""
    sections: dict = dataclasses.field(default_factory=dict)
    flags: tuple = ()
    mistake: str = ""  # DILOCO_TEST_MISTAKE.
    limits: tuple = ()
    spoils: str = ""


def streaming(up):
    return {"sync": {"preset": "streaming", "up": up}}


RECOVERS = Limit("G", 0.5, least=True)
SMALL_UPDATES = 0.003
SETTINGS = {
    "diloco": Setting(limits=(RECOVERS,)),
    "fedavg": Setting({"outer": AVERAGE}),
    "streaming-fp32": Setting(streaming("fp32"),
                              limits=(Limit("loss", 0.03, "diloco"),)),
    "streaming": Setting(streaming("e3m0"), limits=(
        Limit("loss", SMALL_UPDATES, "streaming-fp32", either=True),
        Limit("loss", 0.03, "diloco"))),
    "int8": Setting({"sync": {"up": "int8"}},
                    limits=(Limit("loss", SMALL_UPDATES, "diloco",
                                  either=True),)),
    "e3m0-feedback": Setting(
        {"sync": {"up": "e3m0", "error_feedback": "on"}},
        limits=(Limit("loss", SMALL_UPDATES, "diloco", either=True),)),
    "slow": Setting({"sync": {"deadline": "auto", "steps": "by_speed"}},
                    ("--speeds", "0.33,1"),
                    limits=(Limit("waits", 0.05),
                            Limit("loss", 0.02, "diloco"))),
    "kill": Setting({"sync": {"deadline": "auto"}}, ("--kill", "w2@2")),
    "no-exchange": Setting(mistake="no-merge", spoils="diloco"),
    "adamw-reset": Setting(mistake="reset-adamw", spoils="diloco"),
    "residual-dropped": Setting({"sync": {"up": "e3m0",
                                          "error_feedback": "off"}},
                                spoils="e3m0-feedback"),
    "fragment-unmerged": Setting(streaming("fp32"), mistake="no-merge:0",
                                 spoils="streaming"),
}
