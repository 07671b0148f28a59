"""Draws the plan of a seed: the messages of each client with their times, and the failures. The plan is drawn before
anything runs, from the seed alone.

A `Mix` is a kind of failure conditions. A seed draws one mix, so that each schedule stays short and its faults
coincide. `world.py` carries the plan out. Everything that can be decided before the start is decided here, and printed
at the head of a history.
"""

import random
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["MIXES", "Mix", "Plan", "Said", "Trouble", "plan_of"]


@dataclass(frozen=True)
class Mix:
    """The failure conditions of a schedule. `calls` has the chance of each fault per call of the store, and `lost` the
    share of lost wake-up tokens, inbox signals and published messages. `troubles` names kinds of larger trouble, of
    which each seed draws `count`. `scripts` has the weights of the words that a user may say (`cast.py`). With
    `is_behind`, the store's clock steps back by a minute at the start, so that after a failover the same ids occur
    again. `watched` is the share of schedules in which a reader follows the chat; in the others only the store's log
    shows what happened. With `has_versions`, one worker has the next version, other workers may change to that version
    and back, and in the end all workers have it. With `looks`, workers search for owners without a listener; in other
    mixes only the end of a lease shows a dead owner. With `agents`, durable agents answer; with `changes`, a deploy
    changes the agents' code; with `frameworks`, the agents are framework agents, which use the seam."""

    calls: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    count: tuple[int, int] = (0, 0)
    scripts: dict[str, int] = field(default_factory=lambda: {"say": 6, "slow": 3, "once": 2, "safe": 1, "ide": 1})
    others: tuple[str, ...] = ("params", "abort", "steer", "cancel")
    commands: tuple[int, int] = (1, 2)
    reposts: float = 0.1
    continues: float = 0.5
    workers: int = 2
    nodes: int = 1
    is_behind: bool = False
    has_versions: bool = False
    watched: float = 0.25
    agents: bool = False
    changes: bool = False
    frameworks: bool = False
    looks: bool = False


MIXES: dict[str, Mix] = {
    "crash": Mix(
        calls={"dies": 0.02, "lost": 0.02},
        lost={"mail": 0.1, "bell": 0.1},
        troubles=("kill", "kill", "pause", "drain", "cut"),
        count=(1, 3),
    ),
    "net": Mix(
        calls={"refused": 0.04, "lost": 0.06, "late": 0.03, "twice": 0.06, "slow": 0.02},
        lost={"mail": 0.1, "bell": 0.1, "publish": 0.08},
        troubles=("pause", "kill", "interrupt", "cut"),
        count=(0, 2),
        reposts=0.4,
        commands=(1, 3),
        nodes=2,
    ),
    "pause": Mix(
        calls={"slow": 0.02, "lost": 0.02},
        troubles=("pause", "pause", "freeze_node", "cut"),
        count=(1, 3),
        scripts={"say": 2, "slow": 3, "once": 3, "safe": 1},
        commands=(1, 1),
    ),
    "skew": Mix(
        calls={"lost": 0.03, "twice": 0.03},
        lost={"publish": 0.05},
        troubles=("clock", "clock", "kill", "pause"),
        count=(2, 4),
        scripts={"say": 3, "slow": 1, "ide": 3, "once": 1},
        commands=(1, 1),
    ),
    "failover": Mix(
        calls={"lost": 0.02, "twice": 0.03, "late": 0.02},
        troubles=("failover", "failover", "pause", "kill", "back"),
        count=(2, 4),
        reposts=0.3,
        commands=(2, 2),
    ),
    "twins": Mix(
        calls={"lost": 0.02, "slow": 0.02},
        troubles=("failover", "failover", "kill"),
        count=(2, 3),
        scripts={"say": 1},
        others=("params",),
        commands=(2, 2),
        workers=3,
        is_behind=True,
    ),
    "slow": Mix(
        calls={"lost": 0.01},
        lost={"publish": 0.15},
        troubles=("slow_reader", "slow_reader", "drop_reader", "freeze_node", "interrupt"),
        count=(2, 4),
        workers=1,
        commands=(1, 1),
        watched=1.0,
    ),
    "silence": Mix(
        calls={"dies": 0.01, "lost": 0.02, "refused": 0.01},
        lost={"mail": 0.1, "bell": 0.1},
        troubles=("kill", "blink", "blink", "half_open", "half_open", "kick", "pause", "drain"),
        count=(1, 3),
        scripts={"once": 5, "slow": 3, "say": 2, "safe": 1},
        workers=3,
        looks=True,
    ),
    "promoted": Mix(
        calls={"dies": 0.01, "lost": 0.02},
        troubles=("failover", "kick", "kick", "blink", "kill"),
        count=(1, 3),
        reposts=0.3,
        workers=3,
        looks=True,
    ),
    "poison": Mix(
        calls={"lost": 0.02},
        lost={"mail": 0.1},
        troubles=("kill",),
        count=(0, 1),
        scripts={"say": 3, "kill": 1, "once": 1},
        others=("poison", "params"),
        commands=(1, 2),
        workers=1,
    ),
    "full": Mix(
        calls={"lost": 0.02},
        troubles=("full", "full", "kill", "drain"),
        count=(1, 2),
        commands=(1, 1),
    ),
    "busy": Mix(
        calls={"lost": 0.02, "twice": 0.02},
        lost={"mail": 0.4, "bell": 0.3},
        troubles=("kill", "pause"),
        count=(0, 1),
        scripts={"hang": 3, "slow": 1, "ask": 3, "say": 2},
        others=("abort", "params", "cancel", "steer"),
    ),
    "urgent": Mix(
        calls={"lost": 0.02, "twice": 0.02},
        lost={"mail": 0.2, "bell": 0.2},
        troubles=("kill", "kill", "pause", "drain", "cut"),
        count=(0, 2),
        scripts={"hang": 2, "slow": 2, "once": 3, "ask": 2, "say": 2},
        others=("urgent", "urgent", "urgent", "abort", "steer", "cancel"),
        commands=(2, 4),
    ),
    "timers": Mix(
        calls={"lost": 0.03, "twice": 0.02},
        lost={"bell": 0.2},
        troubles=("kill", "pause", "drain"),
        count=(0, 2),
        scripts={"ide": 5, "say": 1},
        commands=(1, 1),
        others=("params",),
    ),
    "delete": Mix(
        calls={"lost": 0.04, "twice": 0.08, "late": 0.03},
        troubles=("delete", "delete", "delete", "kill", "back"),
        count=(1, 3),
        scripts={"say": 3, "slow": 2, "ide": 1},
        others=("params", "import", "import"),
        commands=(2, 3),
    ),
    "upgrade": Mix(
        calls={"lost": 0.02},
        lost={"publish": 0.05},
        troubles=("upgrade", "downgrade", "downgrade", "drain", "kill"),
        count=(1, 2),
        scripts={"say": 6, "slow": 2, "once": 1},
        commands=(2, 2),
        watched=0.5,
        has_versions=True,
    ),
    "agents": Mix(
        calls={"dies": 0.02, "lost": 0.03, "slow": 0.02},
        lost={"mail": 0.1, "bell": 0.1},
        troubles=("kill", "kill", "pause", "drain", "cut"),
        count=(0, 3),
        scripts={"go": 1},
        others=("params", "steer", "abort"),
        agents=True,
    ),
    "waits": Mix(
        calls={"lost": 0.02, "twice": 0.03, "slow": 0.04},
        lost={"mail": 0.3, "bell": 0.3, "publish": 0.05},
        troubles=("pause", "drain", "kill", "interrupt"),
        count=(0, 2),
        scripts={"go": 1},
        others=("urgent", "abort", "steer", "steer", "params", "cancel"),
        commands=(1, 4),
        agents=True,
    ),
    "recode": Mix(
        calls={"lost": 0.02, "dies": 0.01},
        troubles=("deploy",),
        count=(1, 1),
        scripts={"go": 1},
        others=("params",),
        commands=(1, 1),
        agents=True,
        changes=True,
    ),
    "frameworks": Mix(
        calls={"dies": 0.02, "lost": 0.02},
        lost={"mail": 0.1, "bell": 0.1},
        troubles=("kill", "kill", "pause", "drain", "interrupt"),
        count=(1, 3),
        scripts={"go": 1},
        commands=(1, 2),
        agents=True,
        frameworks=True,
    ),
}


@dataclass(frozen=True)
class Said:
    """A command. `target` is the request id that the command refers to."""

    at: float
    request_id: str
    kind: str
    script: str = ""
    target: str = ""


@dataclass(frozen=True)
class Trouble:
    """A larger trouble. `seconds` is its duration, or the size of a clock's step."""

    at: float
    kind: str
    who: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    seed: int
    name: str
    mix: Mix
    said: tuple[Said, ...]
    troubles: tuple[Trouble, ...]
    can_continue: bool
    is_watched: bool = True

    @cached_property
    def quiet_at(self) -> float:
        """Return the time after which there are no more failures."""
        ends = [each.at + (each.seconds if each.kind != "clock" else 0.0) for each in self.troubles]
        return max([0.4, *ends, *(each.at + 0.5 for each in self.said)])

    def lines(self) -> list[str]:
        said = [f"  {s.at * 1000:6.0f} ms says {s.request_id}: {s.kind} {s.script}{s.target}" for s in self.said]
        wrong = [f"  {t.at * 1000:6.0f} ms {t.kind} {t.who} for {t.seconds:.2f} s" for t in self.troubles]
        return [
            f"seed {self.seed}: {self.name}, continues: {self.can_continue}, watched: {self.is_watched}",
            *said,
            *wrong,
        ]


def plan_of(seed: int, mix_name: str | None = None) -> Plan:
    """Return the plan of a seed; with a named mix, or with the seed's own."""
    draw = random.Random(f"plan {seed}")
    names = list(MIXES)
    name = mix_name or names[seed % len(names)]
    mix = MIXES[name]
    said: list[Said] = []
    at = 0.01
    scripts, weights = list(mix.scripts), list(mix.scripts.values())
    for number in range(draw.randint(*mix.commands)):
        request_id = f"r{number}"
        kind = "user" if number == 0 or draw.random() < 0.6 else draw.choice(mix.others)
        script = draw.choices(scripts, weights)[0] if kind in ("user", "steer", "urgent") else ""
        target = draw.choice(said).request_id if kind == "cancel" else ""
        said.append(Said(at, request_id, kind, script, target))
        at += draw.choice((0.0, 0.03, 0.2, 0.5))
    if any(each.script == "hang" for each in said):
        said += [Said(at + 0.6 + 0.3 * n, f"a{n}", "abort") for n, each in enumerate(said) if each.script == "hang"]
    troubles = [
        Trouble(draw.uniform(0.0, at + 0.6), draw.choice(mix.troubles), draw.randrange(3), draw.uniform(0.05, 1.8))
        for _ in range(draw.randint(*mix.count))
    ]
    return Plan(
        seed,
        name,
        mix,
        tuple(said),
        tuple(sorted(troubles, key=lambda t: t.at)),
        can_continue=draw.random() < mix.continues,
        is_watched=draw.random() < mix.watched,
    )
