import signal

from disaggpair_bed.node.faults import ANNOTATION, Faults, parse_faults
from disaggpair_bed.node.signals import FaultSignals


class Recorder:
    def __init__(self) -> None:
        self.got: list[int] = []

    def signal(self, number: int) -> None:
        self.got.append(number)


def faults(text: str) -> Faults:
    return parse_faults({ANNOTATION: text})


def test_no_annotation_means_no_faults() -> None:
    assert parse_faults({}) == Faults()


def test_a_list_of_faults_is_read() -> None:
    assert faults("node-gone, efa-gone,slow-start=20,hung=engine,kill=a#2") == Faults(
        node_gone=True,
        efa_gone=True,
        slow_start_s=20,
        hung=frozenset({"engine"}),
        kill=frozenset({"a#2"}),
    )


def test_words_that_mean_nothing_are_reported() -> None:
    assert faults("node_gone,slow-start=soon,hung").unknown == (
        "node_gone",
        "slow-start=soon",
        "hung",
    )


def test_a_container_is_stopped_once_and_continued_when_the_fault_goes() -> None:
    engine, signals = Recorder(), FaultSignals()
    for text in ("hung=engine", "hung=engine", ""):
        signals.apply(faults(text), {"engine": engine})
    assert engine.got == [signal.SIGSTOP, signal.SIGCONT]


def test_each_value_of_kill_acts_once() -> None:
    engine, signals = Recorder(), FaultSignals()
    for text in ("kill=engine", "kill=engine", "kill=engine#2", "kill=nobody"):
        signals.apply(faults(text), {"engine": engine})
    assert engine.got == [signal.SIGKILL, signal.SIGKILL]
