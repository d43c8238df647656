"""Diagnose a log: how deep it should have gone, what that would save, whether to trust it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stopwise.cascade import Cascade
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.logs.diagnosis import plug_in
from stopwise.logs.diagnosis.agreement import read_agreement
from stopwise.logs.diagnosis.audit import LEAST_LABELS, Rows, read_audit
from stopwise.logs.diagnosis.disagreement import group_disagreements, pair_disagreements
from stopwise.logs.diagnosis.findings import Arm, Audit, Diagnosis
from stopwise.logs.diagnosis.models import Disagreement, reliability
from stopwise.logs.diagnosis.planning import plan_audit
from stopwise.logs.diagnosis.sampling import STREAM, Survey, survey
from stopwise.logs.diagnosis.verdict import MOST_DEGREE, judge
from stopwise.logs.log import Log

Progress = Callable[[str, int, int], None]

LEAST_ROWS = 50
DRAWS = 200
INTERVALS = (
    "Intervals are at 95 %. They count the chance of the rows, not a change of the world between "
    "the log and tomorrow."
)
THE_RULE = (
    "The rule is the one USS-PD arrives at when it has learned; while it learns it goes deeper now "
    "and then. Each row is judged by models that were fitted on other rows."
)


def diagnose(
    log: Log,
    cascade: Cascade,
    *,
    degree: int = 1,
    sample: int = 200_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    r"""Read a log once and say what it tells about its cascade.

    Parameters
    ----------
    log : Log
        The log.
    cascade : Cascade
        What its arms cost, in units of one error.
    degree : int
        Of the polynomial in the scaled context by which disagreement is modelled, 1 to 4.
    sample : int
        The most rows that are kept in memory, and that models are fitted on.
    seed : int
        Of the choice of rows. The same log and seed give the same diagnosis.
    progress : callable, optional
        Called as ``progress(stage, done, of)``.

    Returns
    -------
    Diagnosis
        Plain numbers and words.

    Raises
    ------
    InvalidLogError
        If too few rows have the outputs of all arms, or no label is ever what an arm says.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     rows = "0.1,cat,cat\n0.9,cat,dog\n0.2,dog,dog\n" * 40
    ...     _ = path.write_text("context.blur,output.small,output.large\n" + rows)
    ...     found = diagnose(Log(path), Cascade([0.01, 0.3]))
    >>> found.verdict.answer
    'probably'
    >>> [round(s.share.value, 2) for s in found.stops]
    [0.67, 0.33]
    """
    tell = progress or _silent
    if cascade.n_arms != len(log.arms):
        raise InvalidParameterError(
            f"the log has {len(log.arms)} arms ({', '.join(log.arms)}) but there are "
            f"{cascade.n_arms} costs; give one cost for each arm"
        )
    if not 1 <= degree <= MOST_DEGREE:
        raise InvalidParameterError(f"degree must be 1 to {MOST_DEGREE}, not {degree}")
    if sample < LEAST_ROWS:
        raise InvalidParameterError(f"sample must be at least {LEAST_ROWS}, not {sample}")
    cascade = _named(cascade, log.arms)
    seen = survey(
        log.chunks(),
        cascade.n_arms,
        len(log.context),
        sample=sample,
        seed=seed,
        rows=log.rows,
        progress=tell,
    )
    rows = seen.sample
    if rows.n < LEAST_ROWS:
        raise InvalidLogError(
            f"{log.path.name}: only {rows.n} rows have the outputs of all "
            f"{cascade.n_arms} arms, and a diagnosis takes at least {LEAST_ROWS}; log more rounds "
            "that go to the last arm, or leave out arms that hardly ever answered"
        )
    if seen.judged >= LEAST_LABELS and not seen.matched:
        raise InvalidLogError(
            f"{log.path.name}: on none of {seen.judged:,} labelled rows is the label what any arm "
            f"said; a label is {seen.unlike[0]} where an output is {seen.unlike[1]}: write labels "
            "as the outputs are written, or name another column as the label"
        )
    model = Disagreement(
        cascade,
        rows.contexts,
        rows.differ,
        degree=degree,
        sees=log.sees,
        fitted=lambda done: tell("fitting", done, 2),
    )
    tell("estimating", 0, 3)
    predicted = model.out_of_sample
    stops = plug_in.plug_in_stops(cascade, predicted)
    calibration = reliability(cascade, predicted, rows.differ, model.n_features)
    random = np.random.default_rng([seed, STREAM, 1])
    saving = plug_in.saving(
        cascade, stops, rows.differ, model.redrawn(rows.contexts, DRAWS, random), model.calmed()
    )
    agreement = read_agreement(
        cascade,
        predicted,
        rows.outputs,
        rows.differ,
        seen.classes,
        seen.audited.wrong if seen.audited.n >= LEAST_LABELS else None,
    )
    tell("estimating", 1, 3)
    known = len(log.context) if log.sees is None else log.sees[0]
    audit: Audit | None = None
    labelled = None
    if seen.audited.n >= LEAST_LABELS:
        among = _halves(seen, model)
        p = model.predict(seen.audited.contexts, among)
        labelled = p, seen.audited.wrong
        audit = read_audit(
            cascade,
            Rows(seen.audited.contexts[:, :known], p),
            seen.audited.wrong,
            Rows(rows.contexts[:, :known], predicted),
            degree=degree,
            random=np.random.default_rng([seed, STREAM]),
        )
    tell("estimating", 2, 3)
    fixed = plug_in.fixed_depths(
        cascade, rows.differ, None if audit is None else seen.audited.wrong
    )
    plan = (
        plan_audit(cascade, predicted, rows.differ.mean(axis=0), agreement) if audit is None else ()
    )
    found = Diagnosis(
        log=log.path.name,
        rows=seen.rows,
        used=rows.n,
        full_depth=seen.full_depth,
        labelled=seen.labelled,
        arms=tuple(
            Arm(name, float(own), float(total), int(n))
            for name, own, total, n in zip(
                cascade.names, cascade.costs, cascade.cumulative, seen.answered, strict=True
            )
        ),
        context=tuple(log.context),
        pairs=pair_disagreements(cascade, seen.pair_rows, seen.pair_differ),
        groups=group_disagreements(log.context, rows.contexts, rows.differ),
        reliability=calibration,
        stops=plug_in.stop_shares(cascade, stops),
        saving=saving,
        margins=plug_in.margins(cascade, predicted, stops),
        frontier=plug_in.frontier(cascade, predicted, rows.differ, labelled),
        fixed=fixed,
        agreement=agreement,
        audit=audit,
        plan=plan,
        verdict=judge(
            cascade,
            saving,
            calibration,
            agreement,
            audit,
            plan,
            shares=np.bincount(stops, minlength=cascade.n_arms) / len(stops),
            unseen=seen.unseen,
            degree=degree,
        ),
        notes=_notes(log, seen, cascade),
        seed=seed,
        unseen=seen.unseen,
        degree=degree,
    )
    tell("estimating", 3, 3)
    return found


def _silent(stage: str, done: int, of: int) -> None:
    del stage, done, of


def _named(cascade: Cascade, names: tuple[str, ...]) -> Cascade:
    """Return the cascade with the log's names."""
    if cascade.names == names:
        return cascade
    # a rounding error must not make an arm that costs nothing lower the total
    totals = np.maximum.accumulate(cascade.cumulative / cascade.tradeoff)
    return Cascade.from_cumulative(totals, names=names, tradeoff=cascade.tradeoff)


def _halves(seen: Survey, model: Disagreement) -> NDArray[np.int64]:
    """Return for every labelled row the half of the sample it is in; any, if it is in none."""
    order = np.argsort(seen.sample.number)
    place = np.searchsorted(seen.sample.number[order], seen.audited.number)
    place = order[np.minimum(place, len(order) - 1)]
    inside = seen.sample.number[place] == seen.audited.number
    return np.where(inside, model.half[place], seen.audited.number % 2)


def _notes(log: Log, seen: Survey, cascade: Cascade) -> tuple[str, ...]:
    notes = [INTERVALS, THE_RULE]
    dear = [n for n, c in zip(cascade.names, cascade.costs, strict=True) if c > 1]
    if dear:
        notes.append(
            f"{' and '.join(dear)} {'costs' if len(dear) == 1 else 'cost'} more than the one error "
            "that such an arm could mend. Perhaps the costs are not in units of one error."
        )
    if seen.sample.n < seen.full_depth:
        notes.append(
            f"Models, shares and savings rest on a random sample of {seen.sample.n:,} of the "
            f"{seen.full_depth:,} rows with every output."
        )
    truncated = seen.rows - seen.full_depth
    if truncated:
        notes.append(
            f"{truncated:,} of {seen.rows:,} rows stop before {cascade.names[-1]}. The sample "
            "gives each place where the policy wanted to stop its share of the log. That makes up "
            "for the choice of rows if chance alone took some of them deeper, as forced "
            "full-depth rounds do; the plain rates by pair are of the rows that both arms answered."
        )
    if seen.unseen > 0.01:
        notes.append(
            f"{100 * seen.unseen:.0f} % of the rows are of kinds that never went to the last arm; "
            "nothing here speaks of those."
        )
    if cascade.n_arms >= 3:
        kind = (
            "two wrong arms never say the same (free text)"
            if seen.classes is None
            else "a wrong arm says each wrong class alike"
            if seen.classes > 2
            else None
        )
        notes.append(
            "Accuracy from agreement, and its intervals, hold only if the assumption does: that "
            "among cases about equally hard, and given the right answer, arms err independently"
            + (f", and that {kind}" if kind else "")
            + "; most arms must be right more often than not."
        )
    if log.sees is not None:
        notes.append(
            "Each arm is judged on what is known when standing there; what stages reveal later is "
            "not used earlier. The best arm by the labels is that given what is known at the "
            "start."
        )
    if seen.labelled:
        notes.append(
            f"Labels: {seen.labelled:,} rows, {seen.labelled_deep:,} of them with every output. "
            "They are taken to be a random choice of rows; labels given to hard cases only would "
            "mislead."
        )
        if seen.audited.n < LEAST_LABELS:
            notes.append(
                f"Fewer than {LEAST_LABELS} labelled rows have every output: too few to use."
            )
    return tuple(notes)
