"""Seeded runs of every policy as plain data."""

from typing import Any, Literal

from msgspec import Struct

Column = Literal["uniform", "levels", "binary", "constant", "raw", "outliers"]
Kind = Literal["identity", "polynomial", "standard", "scaled", "custom"]
Way = Literal["single", "pairs", "staged", "run", "recorded"]


class Map(Struct, frozen=True, kw_only=True):
    """A feature map; fields that its kind does not have are ignored.

    ``scaled`` applies a polynomial of ``degree``, or an identity if that is 0, after centering and
    scaling. ``function`` names a function of `worlds.FUNCTIONS`.
    """

    kind: Kind
    degree: int = 2
    bias: bool = True
    bound: float = 1.0
    without: tuple[tuple[int, ...], ...] = ()
    center: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    outside: Literal["error", "clip"] = "error"
    function: str = ""


class Maps(Struct, frozen=True, kw_only=True):
    """Feature maps of a policy: one for all pairs, one per stage, or one per pair, in order."""

    arrangement: Literal["shared", "per_stage", "per_pair"]
    maps: tuple[Map, ...]


class World(Struct, frozen=True, kw_only=True):
    """How contexts, outputs and labels are drawn (see `worlds`).

    Attributes
    ----------
    columns : tuple of str
        The distribution of every number that is known from the start.
    reveals : tuple of int
        How many more numbers each arm but the last reveals.
    errors : float
        The error rate of arm 0 in a context of average difficulty.
    improvement : float
        How fast errors fall with depth: arm i errs 1 + i·improvement times less often than arm 0.
    shared : float
        How much of the errors is common to all arms: the rounds in which the wrong arms agree.
    shift_at : int
        The round from which arm 0 errs three times as often; 0 for never.
    text : bool
        Whether outputs and labels are strings.
    """

    rounds: int
    columns: tuple[Column, ...] = ("uniform", "uniform")
    reveals: tuple[int, ...] = ()
    classes: int = 3
    errors: float = 0.3
    improvement: float = 0.9
    shared: float = 0.0
    shift_at: int = 0
    text: bool = False


class Spec(Struct, frozen=True, kw_only=True):
    """One run.

    Attributes
    ----------
    way : str
        ``single``: decide and observe; ``pairs``: decide and observe disagreements; ``staged``:
        start, next, give, learn; ``run`` and ``recorded``: many rounds at once.
    seed : int
        Of the world, of failures and of the order of interleaved rounds. ``options`` has the
        policy's own.
    features : Map or Maps, optional
        None for the policy's default.
    sees_answers : bool
        Whether rounds are decided arm by arm, by answers so far and by what arms reveal.
    failing : float
        The chance that an arm fails when it is run.
    unknown : float
        For ``recorded``: the share of rounds whose record ends at a random arm.
    answered : float
        The share of the labels asked for that arrive, ``delay`` rounds later.
    unrequested : float
        The share of the other rounds that are labelled all the same.
    open : int
        For ``staged``: how many rounds are in progress at the same time.
    run_all : float
        For ``staged``: the share of rounds that run every arm, whatever the rule says.
    warm : int
        Rounds at the beginning that are learned by `observe_many`.
    reload_at : tuple of int
        The numbers of finished rounds after which the policy is written and read again, by a file,
        a pickle and a copy in turn; rounds in progress are stored and resumed.
    probe_every : int
        After how many rounds `decide_many`, or `should_stop_many`, is asked about a few contexts.
    watched : bool
        Whether changes are watched for.
    quick : bool
        Whether `test_identical` plays it twice, and without reloading.
    """

    name: str
    policy: str
    way: Way
    seed: int
    costs: tuple[float, ...]
    world: World
    features: Map | Maps | None = None
    sees_answers: bool = False
    options: dict[str, Any] = {}
    failing: float = 0.0
    unknown: float = 0.0
    answered: float = 1.0
    delay: int = 0
    unrequested: float = 0.0
    open: int = 1
    run_all: float = 0.0
    warm: int = 0
    reload_at: tuple[int, ...] = ()
    probe_every: int = 0
    watched: bool = False
    quick: bool = False


TWO = (0.05, 0.35)
THREE = (0.05, 0.32, 0.22)
FOUR = (0.04, 0.3, 0.2, 0.15)
FIVE = (0.04, 0.28, 0.2, 0.14, 0.12)
SIX = (0.03, 0.26, 0.18, 0.14, 0.12, 0.1)
SEVEN = (0.03, 0.24, 0.16, 0.14, 0.12, 0.1, 0.08)
CHEAP_TWO = (0.02, 0.1)
CHEAP_THREE = (0.02, 0.1, 0.06)
CHEAP_FOUR = (0.02, 0.08, 0.06, 0.05)
CHEAP_FIVE = (0.02, 0.08, 0.05, 0.05, 0.04)
CHEAP_SIX = (0.02, 0.07, 0.05, 0.04, 0.04, 0.03)
CHEAP_SEVEN = (0.02, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03)

IDENTITY = Map(kind="identity")
LINE = Map(kind="polynomial", degree=1)
CURVE = Map(kind="polynomial", degree=2)
CUBIC = Map(kind="polynomial", degree=3, without=((0, 0, 0), (1, 1, 1)))
NO_BIAS = Map(kind="polynomial", degree=2, bias=False, bound=2.0)
STANDARD = Map(kind="standard")
SCALED = Map(kind="scaled", degree=1, center=(40.0, 0.0), scale=(25.0, 1.0))
CLIPPED = Map(kind="scaled", degree=2, center=(45.0, 0.1), scale=(12.0, 0.6), outside="clip")
SCALED_IDENTITY = Map(kind="scaled", degree=0, center=(40.0, 0.0), scale=(25.0, 1.0))
WAVE = Map(kind="custom", function="wave")
STEPS = Map(kind="custom", function="steps")

PLAIN: tuple[Column, ...] = ("uniform", "uniform")
WIDE: tuple[Column, ...] = ("uniform", "uniform", "uniform", "levels")
RAW: tuple[Column, ...] = ("raw", "uniform")
MIXED: tuple[Column, ...] = ("raw", "outliers", "binary", "constant", "levels")
ALWAYS = tuple(range(10, 210))
OFTEN = tuple(range(20, 1500, 35))
EARLY = (0, 1, 3, 7, 8, 9, 12, 16, 17, 31, 33, 100, 127, 129, 256, 511, 513, 900, 1023, 1025)

LAPLACE = (
    Spec(
        name="laplace: two arms",
        policy="uss-laplace",
        way="single",
        seed=101,
        costs=TWO,
        world=World(rounds=1200),
        quick=True,
    ),
    Spec(
        name="laplace: columns of every kind",
        policy="uss-laplace",
        way="single",
        seed=102,
        costs=THREE,
        world=World(rounds=1500, columns=MIXED),
        probe_every=100,
        quick=True,
    ),
    Spec(
        name="laplace: four arms at once",
        policy="uss-laplace",
        way="run",
        seed=103,
        costs=FOUR,
        world=World(rounds=3000, columns=WIDE),
        probe_every=250,
    ),
    Spec(
        name="laplace: five arms",
        policy="uss-laplace",
        way="single",
        seed=104,
        costs=FIVE,
        world=World(rounds=1500, text=True),
    ),
    Spec(
        name="laplace: six arms, transitive",
        policy="uss-laplace",
        way="run",
        seed=105,
        costs=SIX,
        world=World(rounds=3000),
        probe_every=200,
    ),
    Spec(
        name="laplace: four arms, transitive, half-life",
        policy="uss-laplace",
        way="single",
        seed=139,
        costs=(0.02, 0.12, 0.2, 0.06),
        world=World(rounds=2000, shared=0.3),
        features=LINE,
        options={"half_life": 60.0, "ridge": 0.05},
        probe_every=100,
    ),
    Spec(
        name="laplace: seven arms, transitive, half-life",
        policy="uss-laplace",
        way="run",
        seed=140,
        costs=(0.02, 0.1, 0.16, 0.05, 0.14, 0.04, 0.12),
        world=World(rounds=2000, shared=0.3),
        features=LINE,
        options={"half_life": 80.0, "z": 0.3},
        reload_at=(900,),
        probe_every=100,
    ),
    Spec(
        name="laplace: seven arms, transitive, reloaded in the first rounds",
        policy="uss-laplace",
        way="staged",
        seed=141,
        costs=(0.02, 0.1, 0.16, 0.05, 0.14, 0.04, 0.12),
        world=World(rounds=1500, columns=RAW, shared=0.5),
        options={"explore": 0.2, "z": 0.3},
        failing=0.01,
        open=5,
        reload_at=EARLY,
    ),
    Spec(
        name="laplace: seven arms, transitive",
        policy="uss-laplace",
        way="single",
        seed=106,
        costs=SEVEN,
        world=World(rounds=1500, columns=WIDE, shared=0.5),
    ),
    Spec(
        name="laplace: seven arms, not transitive",
        policy="uss-laplace",
        way="run",
        seed=107,
        costs=SEVEN,
        world=World(rounds=2000, shared=0.5),
        features=LINE,
        options={"transitive": False, "z": 1.0},
        probe_every=250,
    ),
    Spec(
        name="laplace: half-life",
        policy="uss-laplace",
        way="single",
        seed=108,
        costs=THREE,
        world=World(rounds=2000, shift_at=1000),
        options={"half_life": 150.0},
        probe_every=100,
    ),
    Spec(
        name="laplace: half-life at once, reloaded",
        policy="uss-laplace",
        way="run",
        seed=109,
        costs=FOUR,
        world=World(rounds=3000, shift_at=1500),
        options={"half_life": 400.0},
        reload_at=(500, 1030, 2222),
        probe_every=300,
    ),
    Spec(
        name="laplace: memory, reloaded",
        policy="uss-laplace",
        way="run",
        seed=110,
        costs=THREE,
        world=World(rounds=14_000),
        features=CURVE,
        options={"memory": 1_400_000, "z": 1.5},
        reload_at=(7_000, 11_000),
        probe_every=1000,
    ),
    Spec(
        name="laplace: memory, standard features",
        policy="uss-laplace",
        way="single",
        seed=111,
        costs=CHEAP_TWO,
        world=World(rounds=9_000),
        options={"memory": 6_000_000, "labels": 0.02},
        reload_at=(8_000,),
    ),
    Spec(
        name="laplace: some labels",
        policy="uss-laplace",
        way="single",
        seed=112,
        costs=CHEAP_TWO,
        world=World(rounds=1200),
        options={"labels": 60, "seed": 4},
        delay=5,
        quick=True,
    ),
    Spec(
        name="laplace: labels late and missing",
        policy="uss-laplace",
        way="single",
        seed=113,
        costs=CHEAP_THREE,
        world=World(rounds=1500),
        options={"labels": 0.2, "seed": 5},
        answered=0.7,
        delay=40,
        probe_every=100,
    ),
    Spec(
        name="laplace: labels that fix the depth",
        policy="uss-laplace",
        way="single",
        seed=114,
        costs=(0.01, 0.3),
        world=World(rounds=2100, columns=("uniform",), errors=0.1, improvement=30, classes=2),
        features=STANDARD,
        options={"labels": 0.9, "z": 30.0, "seed": 6},
        probe_every=75,
    ),
    Spec(
        name="laplace: labels that fix the depth of four arms",
        policy="uss-laplace",
        way="run",
        seed=138,
        costs=(0.01, 0.3, 0.02, 0.02),
        world=World(rounds=3000, columns=("uniform",), errors=0.1, improvement=30, classes=2),
        features=LINE,
        options={"labels": 0.9, "z": 30.0},
        reload_at=(150, 600, 1500),
        probe_every=50,
    ),
    Spec(
        name="laplace: labels that fix the depth, exploring",
        policy="uss-laplace",
        way="staged",
        seed=145,
        costs=(0.01, 0.2, 1.0),
        world=World(rounds=1800, columns=("uniform",), improvement=0.5, classes=2),
        options={"labels": 0.9, "z": 30.0, "explore": 0.6, "seed": 2},
        answered=0.95,
        open=3,
        delay=2,
        reload_at=(100, 400, 900),
        probe_every=50,
    ),
    Spec(
        name="laplace: labels in a run",
        policy="uss-laplace",
        way="run",
        seed=115,
        costs=CHEAP_FOUR,
        world=World(rounds=2500, columns=WIDE),
        options={"labels": 150},
        answered=0.8,
        reload_at=(3, 9, 300, 1500),
        probe_every=125,
        quick=True,
    ),
    Spec(
        name="laplace: labels in a record",
        policy="uss-laplace",
        way="recorded",
        seed=116,
        costs=CHEAP_FIVE,
        world=World(rounds=2500),
        options={"labels": 0.15, "seed": 7},
        failing=0.02,
        unknown=0.1,
        answered=0.9,
        probe_every=125,
        quick=True,
    ),
    Spec(
        name="laplace: labels that were not requested",
        policy="uss-laplace",
        way="staged",
        seed=117,
        costs=CHEAP_THREE,
        world=World(rounds=1200, text=True),
        options={"labels": 0.1, "seed": 8},
        answered=0.6,
        delay=3,
        unrequested=0.05,
        open=3,
        reload_at=OFTEN,
    ),
    Spec(
        name="laplace: labels of six arms",
        policy="uss-laplace",
        way="single",
        seed=118,
        costs=CHEAP_SIX,
        world=World(rounds=1500, improvement=-0.1),
        features=LINE,
        options={"labels": 0.2, "seed": 9, "transitive": True},
        delay=10,
        reload_at=(700,),
    ),
    Spec(
        name="laplace: labels of seven arms with a half-life",
        policy="uss-laplace",
        way="run",
        seed=119,
        costs=CHEAP_SEVEN,
        world=World(rounds=3000),
        features=LINE,
        options={"labels": 0.1, "half_life": 500.0},
        probe_every=200,
    ),
    Spec(
        name="laplace: exploring, interleaved",
        policy="uss-laplace",
        way="staged",
        seed=120,
        costs=THREE,
        world=World(rounds=1500),
        options={"explore": 0.4, "seed": 10},
        failing=0.03,
        open=6,
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="laplace: reloaded in the first rounds",
        policy="uss-laplace",
        way="single",
        seed=121,
        costs=THREE,
        world=World(rounds=1200, columns=RAW),
        options={"explore": 0.1},
        reload_at=EARLY,
        quick=True,
    ),
    Spec(
        name="laplace: reloaded in the first rounds, with labels",
        policy="uss-laplace",
        way="single",
        seed=122,
        costs=CHEAP_FOUR,
        world=World(rounds=1200, columns=RAW),
        options={"labels": 0.3},
        answered=0.8,
        delay=6,
        reload_at=EARLY,
    ),
    Spec(
        name="laplace: one standard feature",
        policy="uss-laplace",
        way="single",
        seed=123,
        costs=THREE,
        world=World(rounds=1200, columns=("raw",)),
        reload_at=(5, 40, 1100),
    ),
    Spec(
        name="laplace: no context",
        policy="uss-laplace",
        way="single",
        seed=124,
        costs=FOUR,
        world=World(rounds=800, columns=()),
        options={"explore": 0.05},
        reload_at=(4, 300),
    ),
    Spec(
        name="laplace: a standard map for each stage",
        policy="uss-laplace",
        way="single",
        seed=125,
        costs=FOUR,
        world=World(rounds=1200, columns=RAW),
        features=Maps(arrangement="per_stage", maps=(STANDARD, STANDARD, STANDARD)),
        reload_at=(6, 20, 500),
    ),
    Spec(
        name="laplace: a standard map for each pair",
        policy="uss-laplace",
        way="run",
        seed=126,
        costs=THREE,
        world=World(rounds=1500, columns=RAW),
        features=Maps(arrangement="per_pair", maps=(STANDARD, STANDARD, STANDARD)),
        probe_every=100,
    ),
    Spec(
        name="laplace: a map for each pair",
        policy="uss-laplace",
        way="staged",
        seed=127,
        costs=THREE,
        world=World(rounds=1200),
        features=Maps(arrangement="per_pair", maps=(LINE, CURVE, IDENTITY)),
        open=4,
        reload_at=(50, 600),
    ),
    Spec(
        name="laplace: a function as features",
        policy="uss-laplace",
        way="single",
        seed=128,
        costs=THREE,
        world=World(rounds=1000),
        features=WAVE,
        options={"labels": 40, "explore": 0.1},
        reload_at=(0, 10, 400, 700),
        probe_every=100,
    ),
    Spec(
        name="laplace: functions for stages",
        policy="uss-laplace",
        way="run",
        seed=129,
        costs=FOUR,
        world=World(rounds=1500),
        features=Maps(arrangement="per_stage", maps=(STEPS, LINE, WAVE)),
        reload_at=(300, 600, 900),
        probe_every=150,
    ),
    Spec(
        name="laplace: scaled contexts",
        policy="uss-laplace",
        way="staged",
        seed=130,
        costs=FIVE,
        world=World(rounds=1200, columns=RAW),
        features=SCALED,
        options={"ridge": 0.02, "z": 1.0},
        open=2,
    ),
    Spec(
        name="laplace: clipped contexts",
        policy="uss-laplace",
        way="run",
        seed=131,
        costs=FOUR,
        world=World(rounds=2000, columns=RAW),
        features=CLIPPED,
        options={"forced_rounds": 40},
        probe_every=200,
    ),
    Spec(
        name="laplace: forced rounds until explored",
        policy="uss-laplace",
        way="single",
        seed=132,
        costs=THREE,
        world=World(rounds=1200),
        features=LINE,
        options={"forced_rounds": "auto"},
        reload_at=(5, 500),
    ),
    Spec(
        name="laplace: warm start",
        policy="uss-laplace",
        way="single",
        seed=133,
        costs=FOUR,
        world=World(rounds=1500),
        unknown=0.1,
        failing=0.01,
        warm=600,
        reload_at=(600,),
        probe_every=100,
    ),
    Spec(
        name="laplace: warm start, then labels",
        policy="uss-laplace",
        way="single",
        seed=143,
        costs=CHEAP_THREE,
        world=World(rounds=1200, columns=RAW),
        options={"labels": 0.3, "seed": 2},
        warm=90,
        unknown=0.1,
        reload_at=(90, 300),
        probe_every=100,
    ),
    Spec(
        name="laplace: disagreements alone",
        policy="uss-laplace",
        way="pairs",
        seed=134,
        costs=FIVE,
        world=World(rounds=1200),
        failing=0.02,
        reload_at=(15, 800),
    ),
    Spec(
        name="laplace: a record that ends early",
        policy="uss-laplace",
        way="recorded",
        seed=135,
        costs=SIX,
        world=World(rounds=2500, columns=RAW),
        failing=0.05,
        unknown=0.3,
        reload_at=(4, 11, 2000),
        probe_every=200,
    ),
    Spec(
        name="laplace: changes",
        policy="uss-laplace",
        way="single",
        seed=136,
        costs=CHEAP_THREE,
        world=World(rounds=3000, shift_at=1700),
        options={"explore": 0.2},
        watched=True,
        quick=True,
    ),
    Spec(
        name="laplace: changes in a run, reloaded",
        policy="uss-laplace",
        way="run",
        seed=137,
        costs=CHEAP_FOUR,
        world=World(rounds=4000, shift_at=2500),
        features=LINE,
        options={"z": 1.5},
        reload_at=(20, 600, 900, 2000),
        watched=True,
    ),
)

ANSWERS = (
    Spec(
        name="answers, laplace: three arms",
        policy="uss-laplace",
        way="staged",
        seed=201,
        costs=THREE,
        world=World(rounds=1500, reveals=(1, 1)),
        sees_answers=True,
        quick=True,
    ),
    Spec(
        name="answers, laplace: interleaved, reloaded in the first rounds",
        policy="uss-laplace",
        way="staged",
        seed=202,
        costs=FOUR,
        world=World(rounds=1400, reveals=(0, 2, 1)),
        sees_answers=True,
        options={"explore": 0.2, "seed": 3},
        failing=0.02,
        open=6,
        reload_at=ALWAYS,
        probe_every=100,
        quick=True,
    ),
    Spec(
        name="answers, laplace: nothing revealed",
        policy="uss-laplace",
        way="staged",
        seed=203,
        costs=FIVE,
        world=World(rounds=1200, text=True),
        sees_answers=True,
        open=2,
    ),
    Spec(
        name="answers, laplace: six arms at once",
        policy="uss-laplace",
        way="run",
        seed=204,
        costs=SIX,
        world=World(rounds=2000, reveals=(1, 0, 1, 0, 1)),
        sees_answers=True,
        probe_every=250,
        reload_at=(5, 30, 800),
    ),
    Spec(
        name="answers, laplace: a record of seven arms",
        policy="uss-laplace",
        way="recorded",
        seed=205,
        costs=SEVEN,
        world=World(rounds=2000, reveals=(1, 1, 0, 0, 1, 1)),
        sees_answers=True,
        features=Maps(arrangement="per_stage", maps=(LINE,) * 6),
        failing=0.02,
        unknown=0.15,
        probe_every=250,
    ),
    Spec(
        name="answers, laplace: labels",
        policy="uss-laplace",
        way="staged",
        seed=206,
        costs=CHEAP_THREE,
        world=World(rounds=1400, reveals=(1, 1)),
        sees_answers=True,
        options={"labels": 0.3, "seed": 2},
        failing=0.01,
        answered=0.8,
        delay=7,
        run_all=0.1,
        open=3,
        reload_at=OFTEN,
        probe_every=100,
    ),
    Spec(
        name="answers, laplace: labels in a run",
        policy="uss-laplace",
        way="run",
        seed=207,
        costs=CHEAP_FOUR,
        world=World(rounds=2000, reveals=(1, 1, 1)),
        sees_answers=True,
        options={"labels": 100},
        reload_at=(7, 500),
        probe_every=200,
    ),
    Spec(
        name="answers, laplace: some rounds run every arm",
        policy="uss-laplace",
        way="staged",
        seed=208,
        costs=CHEAP_FOUR,
        world=World(rounds=1200, reveals=(1, 1, 1)),
        sees_answers=True,
        options={"labels": 200},
        run_all=0.5,
        open=3,
        reload_at=OFTEN,
    ),
    Spec(
        name="answers, laplace: nothing known at the start",
        policy="uss-laplace",
        way="staged",
        seed=209,
        costs=TWO,
        world=World(rounds=1000, columns=(), reveals=(2,)),
        sees_answers=True,
        open=2,
        reload_at=(8, 100),
    ),
    Spec(
        name="answers, laplace: half-life",
        policy="uss-laplace",
        way="staged",
        seed=210,
        costs=THREE,
        world=World(rounds=1500, reveals=(1, 1), shift_at=800),
        sees_answers=True,
        options={"half_life": 300.0},
        probe_every=100,
    ),
    Spec(
        name="answers, laplace: changes",
        policy="uss-laplace",
        way="staged",
        seed=211,
        costs=CHEAP_THREE,
        world=World(rounds=4200, reveals=(1, 1), shift_at=2700),
        sees_answers=True,
        options={"explore": 0.3},
        reload_at=(300, 1200, 2500, 2800),
        watched=True,
    ),
    Spec(
        name="answers, laplace: warm start",
        policy="uss-laplace",
        way="staged",
        seed=212,
        costs=FOUR,
        world=World(rounds=1400, reveals=(1, 0, 1)),
        sees_answers=True,
        unknown=0.1,
        warm=500,
        open=2,
    ),
    Spec(
        name="answers, uss-pd: own maps",
        policy="uss-pd",
        way="staged",
        seed=213,
        costs=THREE,
        world=World(rounds=1500, reveals=(1, 1)),
        sees_answers=True,
        features=Maps(arrangement="per_stage", maps=(LINE, LINE)),
        options={"sigma": 0.01, "labels": 0.1},
        delay=4,
        open=3,
        reload_at=OFTEN,
    ),
    Spec(
        name="answers, uss-pd-ridge: standard maps",
        policy="uss-pd-ridge",
        way="run",
        seed=214,
        costs=SIX,
        world=World(rounds=1500, reveals=(1, 0, 1, 0, 1)),
        sees_answers=True,
        options={"sigma": 0.005, "lam": 0.1, "S": 0.1},
        probe_every=250,
    ),
    Spec(
        name="answers, thompson: five arms",
        policy="thompson",
        way="staged",
        seed=215,
        costs=FIVE,
        world=World(rounds=1200, reveals=(1, 1, 0, 1)),
        sees_answers=True,
        options={"seed": 11},
        failing=0.01,
        open=4,
        reload_at=OFTEN,
        probe_every=150,
    ),
    Spec(
        name="answers, anchor: own maps",
        policy="uss-anchor",
        way="staged",
        seed=216,
        costs=FOUR,
        world=World(rounds=1500, reveals=(1, 1, 1)),
        sees_answers=True,
        features=Maps(arrangement="per_stage", maps=(LINE, CURVE, LINE)),
        options={"seed": 12},
        open=3,
        reload_at=OFTEN,
    ),
    Spec(
        name="answers, anchor: standard maps at once",
        policy="uss-anchor",
        way="run",
        seed=217,
        costs=THREE,
        world=World(rounds=2000, reveals=(2, 1)),
        sees_answers=True,
        reload_at=(6, 60, 600),
        probe_every=200,
    ),
)

USS_PD = (
    Spec(
        name="uss-pd: two arms",
        policy="uss-pd",
        way="single",
        seed=301,
        costs=TWO,
        world=World(rounds=1500),
        features=LINE,
        options={"sigma": 0.02},
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="uss-pd: identity, the default",
        policy="uss-pd",
        way="single",
        seed=302,
        costs=(0.05, 0.55, 0.5),
        world=World(rounds=1500),
        options={"sigma": 0.01},
    ),
    Spec(
        name="uss-pd: squares, at once",
        policy="uss-pd",
        way="run",
        seed=303,
        costs=THREE,
        world=World(rounds=3000),
        features=CURVE,
        options={"sigma": 0.01, "kappa": 0.2, "delta": 0.1},
        probe_every=250,
    ),
    Spec(
        name="uss-pd: forced rounds until explored",
        policy="uss-pd",
        way="run",
        seed=304,
        costs=FOUR,
        world=World(rounds=2500),
        features=LINE,
        options={"sigma": 0.01, "forced_rounds": "auto"},
        reload_at=(10, 400),
        probe_every=250,
    ),
    Spec(
        name="uss-pd: five arms, transitive",
        policy="uss-pd",
        way="staged",
        seed=305,
        costs=FIVE,
        world=World(rounds=1500),
        features=LINE,
        options={"sigma": 0.01, "transitive": True},
        failing=0.01,
        open=3,
    ),
    Spec(
        name="uss-pd: six arms, transitive",
        policy="uss-pd",
        way="run",
        seed=306,
        costs=SIX,
        world=World(rounds=3000),
        features=LINE,
        options={"sigma": 0.01, "transitive": True},
        reload_at=(1000,),
        probe_every=250,
    ),
    Spec(
        name="uss-pd: seven arms, transitive",
        policy="uss-pd",
        way="single",
        seed=316,
        costs=(0.02, 0.1, 0.16, 0.05, 0.14, 0.04, 0.12),
        world=World(rounds=2000, shared=0.4),
        features=LINE,
        options={"sigma": 0.005, "transitive": True},
        reload_at=(500, 1500),
        probe_every=200,
    ),
    Spec(
        name="uss-pd: disagreements alone, with labels",
        policy="uss-pd",
        way="pairs",
        seed=317,
        costs=CHEAP_FOUR,
        world=World(rounds=1200),
        features=LINE,
        options={"sigma": 0.01, "explore": 0, "labels": 0.2},
        failing=0.01,
        delay=3,
        reload_at=(100,),
    ),
    Spec(
        name="uss-pd: seven arms, standard features",
        policy="uss-pd",
        way="run",
        seed=307,
        costs=SEVEN,
        world=World(rounds=2000, columns=RAW, shared=0.4),
        features=STANDARD,
        options={"sigma": 0.005},
        reload_at=(7, 70, 1500),
        probe_every=250,
    ),
    Spec(
        name="uss-pd: exploring, with labels",
        policy="uss-pd",
        way="single",
        seed=308,
        costs=CHEAP_THREE,
        world=World(rounds=1500),
        features=LINE,
        options={"sigma": 0.01, "explore": 0.3, "labels": 0.3, "seed": 13},
        answered=0.9,
        delay=12,
        reload_at=(30, 1000),
        probe_every=150,
    ),
    Spec(
        name="uss-pd: half-life",
        policy="uss-pd",
        way="run",
        seed=309,
        costs=THREE,
        world=World(rounds=2500, shift_at=1200),
        features=LINE,
        options={"sigma": 0.01, "half_life": 300.0},
        probe_every=250,
    ),
    Spec(
        name="uss-pd: a map for each stage",
        policy="uss-pd",
        way="single",
        seed=310,
        costs=FOUR,
        world=World(rounds=1500),
        features=Maps(arrangement="per_stage", maps=(LINE, CURVE, IDENTITY)),
        options={"sigma": 0.01},
        reload_at=(700,),
    ),
    Spec(
        name="uss-pd: a larger bound, no bias",
        policy="uss-pd",
        way="recorded",
        seed=311,
        costs=TWO,
        world=World(rounds=1500),
        features=NO_BIAS,
        options={"sigma": 0.01},
        failing=0.05,
        unknown=0.2,
        probe_every=150,
    ),
    Spec(
        name="uss-pd: contexts that repeat",
        policy="uss-pd",
        way="run",
        seed=312,
        costs=THREE,
        world=World(rounds=3000, columns=("levels", "binary")),
        features=Maps(arrangement="shared", maps=(LINE,)),
        options={"sigma": 0.02},
        reload_at=(1500,),
        probe_every=250,
    ),
    Spec(
        name="uss-pd: memory",
        policy="uss-pd",
        way="run",
        seed=313,
        costs=(0.05, 0.3, 0.2),
        world=World(rounds=14_000),
        features=LINE,
        options={"sigma": 0.03, "memory": "1.1 MB"},
        reload_at=(7_000, 11_000),
        probe_every=1000,
    ),
    Spec(
        name="uss-pd: more rounds than are played at once",
        policy="uss-pd",
        way="run",
        seed=314,
        costs=TWO,
        world=World(rounds=66_500, columns=("uniform",)),
        features=LINE,
        options={"sigma": 0.05, "explore": 0.1},
    ),
    Spec(
        name="uss-pd: changes",
        policy="uss-pd",
        way="run",
        seed=315,
        costs=THREE,
        world=World(rounds=3000, shift_at=1500),
        features=LINE,
        options={"sigma": 0.01, "half_life": 1000.0},
        watched=True,
    ),
    Spec(
        name="uss-pd-ridge: a map for each pair",
        policy="uss-pd-ridge",
        way="single",
        seed=321,
        costs=THREE,
        world=World(rounds=1500),
        features=Maps(arrangement="per_pair", maps=(IDENTITY, CURVE, LINE)),
        options={"sigma": 0.02, "lam": 0.3, "S": 0.5},
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="uss-pd-ridge: cubes until explored",
        policy="uss-pd-ridge",
        way="run",
        seed=322,
        costs=FOUR,
        world=World(rounds=2500),
        features=CUBIC,
        options={"sigma": 0.005, "lam": 0.05, "S": 0.2, "forced_rounds": "auto"},
        probe_every=250,
    ),
    Spec(
        name="uss-pd-ridge: labels",
        policy="uss-pd-ridge",
        way="staged",
        seed=323,
        costs=CHEAP_FIVE,
        world=World(rounds=1500),
        features=LINE,
        options={"sigma": 0.01, "lam": 0.1, "S": 0.1, "labels": 0.2, "transitive": True},
        answered=0.8,
        delay=9,
        open=4,
        reload_at=(20, 800),
    ),
    Spec(
        name="uss-pd-ridge: scaled contexts with a half-life",
        policy="uss-pd-ridge",
        way="single",
        seed=324,
        costs=TWO,
        world=World(rounds=1500, columns=RAW),
        features=SCALED,
        options={"sigma": 0.02, "lam": 0.1, "S": 0.2, "half_life": 400.0, "explore": 0.1},
        reload_at=(600,),
    ),
    Spec(
        name="uss-pd-ridge: seven arms",
        policy="uss-pd-ridge",
        way="recorded",
        seed=325,
        costs=SEVEN,
        world=World(rounds=2000, shared=0.3),
        features=LINE,
        options={"sigma": 0.005, "lam": 0.1, "S": 0.1, "transitive": True},
        failing=0.01,
        unknown=0.05,
        reload_at=(900,),
        probe_every=200,
    ),
)

OTHERS = (
    Spec(
        name="thompson: two arms",
        policy="thompson",
        way="single",
        seed=401,
        costs=TWO,
        world=World(rounds=1200),
        options={"seed": 1},
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="thompson: interleaved, reloaded",
        policy="thompson",
        way="staged",
        seed=402,
        costs=THREE,
        world=World(rounds=1200),
        features=CURVE,
        options={"seed": 2, "scale": 1.0},
        failing=0.02,
        open=5,
        reload_at=OFTEN,
        probe_every=100,
    ),
    Spec(
        name="thompson: half-life",
        policy="thompson",
        way="run",
        seed=403,
        costs=FOUR,
        world=World(rounds=2000, shift_at=1000),
        options={"seed": 3, "half_life": 300.0},
        reload_at=(10, 1200),
        probe_every=200,
    ),
    Spec(
        name="thompson: a record",
        policy="thompson",
        way="recorded",
        seed=404,
        costs=SIX,
        world=World(rounds=1500),
        features=LINE,
        options={"seed": 4},
        failing=0.03,
        unknown=0.1,
        reload_at=(600,),
        probe_every=150,
    ),
    Spec(
        name="thompson: seven arms, reloaded in the first rounds",
        policy="thompson",
        way="single",
        seed=405,
        costs=SEVEN,
        world=World(rounds=1200, columns=RAW),
        options={"seed": 5},
        reload_at=EARLY,
    ),
    Spec(
        name="thompson: changes",
        policy="thompson",
        way="run",
        seed=406,
        costs=CHEAP_THREE,
        world=World(rounds=3000, shift_at=1500),
        options={"seed": 6, "forced_rounds": 300},
        watched=True,
    ),
    Spec(
        name="anchor: two arms",
        policy="uss-anchor",
        way="single",
        seed=411,
        costs=TWO,
        world=World(rounds=1500),
        options={"seed": 1},
        probe_every=150,
    ),
    Spec(
        name="anchor: five arms, not exploring",
        policy="uss-anchor",
        way="run",
        seed=412,
        costs=FIVE,
        world=World(rounds=2500),
        features=LINE,
        options={"explore": 0, "z": 1.0},
        reload_at=(700,),
        probe_every=250,
    ),
    Spec(
        name="anchor: seven arms, interleaved",
        policy="uss-anchor",
        way="staged",
        seed=413,
        costs=SEVEN,
        world=World(rounds=1500),
        options={"seed": 2},
        failing=0.01,
        open=4,
        reload_at=(5, 40, 900),
        probe_every=150,
    ),
    Spec(
        name="anchor: half-life",
        policy="uss-anchor",
        way="single",
        seed=414,
        costs=FOUR,
        world=World(rounds=1500, columns=RAW, shift_at=700),
        features=SCALED_IDENTITY,
        options={"half_life": 200.0, "seed": 3},
        reload_at=(800,),
    ),
    Spec(
        name="anchor: a record",
        policy="uss-anchor",
        way="recorded",
        seed=415,
        costs=CHEAP_SIX,
        world=World(rounds=2000),
        features=Maps(arrangement="per_stage", maps=(LINE, LINE, CURVE, IDENTITY, LINE)),
        options={"seed": 4},
        failing=0.03,
        unknown=0.1,
        probe_every=200,
    ),
    Spec(
        name="uss-ucb: three arms",
        policy="uss-ucb",
        way="single",
        seed=421,
        costs=(0.05, 0.4, 0.26),
        world=World(rounds=1500),
        options={"a": 0.1},
        failing=0.02,
        reload_at=(5, 800),
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="uss-ucb: six arms at once",
        policy="uss-ucb",
        way="run",
        seed=422,
        costs=SIX,
        world=World(rounds=3000, shared=0.5),
        options={"a": 0.02},
        reload_at=(1000,),
        probe_every=250,
    ),
    Spec(
        name="uss-ts: four arms",
        policy="uss-ts",
        way="staged",
        seed=423,
        costs=(0.04, 0.4, 0.3, 0.2),
        world=World(rounds=1500),
        options={"seed": 1},
        failing=0.02,
        open=4,
        reload_at=(5, 30, 800),
        probe_every=150,
        quick=True,
    ),
    Spec(
        name="uss-ts: a record",
        policy="uss-ts",
        way="recorded",
        seed=424,
        costs=(0.05, 0.42),
        world=World(rounds=1500),
        options={"seed": 2},
        failing=0.02,
        unknown=0.1,
        probe_every=150,
    ),
    Spec(
        name="uss-ts: disagreements alone",
        policy="uss-ts",
        way="pairs",
        seed=425,
        costs=FIVE,
        world=World(rounds=1000, shared=0.4),
        options={"seed": 3},
        failing=0.02,
    ),
    Spec(
        name="fixed-depth",
        policy="fixed-depth",
        way="staged",
        seed=431,
        costs=FOUR,
        world=World(rounds=400),
        options={"depth": 2},
        failing=0.05,
        open=3,
        reload_at=(100,),
        probe_every=100,
    ),
    Spec(
        name="random-depth: one by one",
        policy="random-depth",
        way="staged",
        seed=432,
        costs=FIVE,
        world=World(rounds=600),
        options={"seed": 1},
        open=3,
        reload_at=(5, 100, 300),
        probe_every=100,
        quick=True,
    ),
    Spec(
        name="random-depth: at once",
        policy="random-depth",
        way="run",
        seed=433,
        costs=THREE,
        world=World(rounds=1000),
        options={"seed": 2},
        reload_at=(100,),
        probe_every=100,
    ),
    Spec(
        name="supervised: three arms",
        policy="supervised",
        way="single",
        seed=441,
        costs=(0.05, 0.12, 0.04),
        world=World(rounds=1500, text=True),
        features=LINE,
        options={"sigma": 0.01},
        failing=0.02,
        reload_at=(100, 900),
        probe_every=150,
    ),
    Spec(
        name="supervised: exploring, with a half-life",
        policy="supervised",
        way="run",
        seed=442,
        costs=(0.05, 0.14, 0.05, 0.03),
        world=World(rounds=2000, shift_at=1000),
        features=CURVE,
        options={"sigma": 0.01, "explore": 0.1, "half_life": 500.0, "seed": 1},
        reload_at=(500,),
        probe_every=200,
    ),
    Spec(
        name="oracle",
        policy="oracle",
        way="single",
        seed=443,
        costs=CHEAP_FOUR,
        world=World(rounds=400),
    ),
    Spec(
        name="clairvoyant",
        policy="clairvoyant",
        way="run",
        seed=444,
        costs=FIVE,
        world=World(rounds=1000),
    ),
)

SPECS: tuple[Spec, ...] = LAPLACE + ANSWERS + USS_PD + OTHERS
