"""Diagnose a log: the best depth of each round, the saving, and whether to trust them."""

from functools import partial

import msgspec
import numpy as np

from stopwise import checks
from stopwise.arrays import Ints
from stopwise.cascade import Cascade
from stopwise.errors import InvalidLogError, InvalidParameterError
from stopwise.executors import make_executor
from stopwise.intervals import wilson
from stopwise.logs.diagnosis import plug_in
from stopwise.logs.diagnosis.amounts import in_unit
from stopwise.logs.diagnosis.audit import gain_on_disagreement, plan_labels, read_audit
from stopwise.logs.diagnosis.degree import MAX_DEGREE, better_degree
from stopwise.logs.diagnosis.findings import (
    Audit,
    Diagnosis,
    PairSummary,
    Reliability,
    TenantFinding,
)
from stopwise.logs.diagnosis.models import Disagreement, reliability
from stopwise.logs.diagnosis.over_time import over_time
from stopwise.logs.diagnosis.recommendation import recommend_option
from stopwise.logs.diagnosis.sampling import STREAM, LogSurvey, Sample, complete_agreement, survey
from stopwise.logs.diagnosis.verdict import SHARED, Evidence, judge, needs_other_models
from stopwise.logs.log import Log
from stopwise.logs.partitions import map_partitions
from stopwise.logs.units import describe_unit, error_cost
from stopwise.logs.vocabulary import Vocabulary
from stopwise.progress import Progress, no_progress

LEAST_ROWS = 50
DRAWS = 200
INTERVALS_NOTE = (
    "Intervals are at 95 %. They account for the sampling of rows, not for later changes of the "
    "data."
)
RULE_NOTE = (
    'The results are those of USS-PD after it has learned; "stopwise replay" also counts rounds in '
    "which it goes deeper to learn. Each row is decided by models that were fitted on other rows."
)


def diagnose(
    log: Log,
    cascade: Cascade,
    *,
    degree: int = 1,
    sample: int = 200_000,
    seed: int = 0,
    by: str | None = None,
    executor: str = "threads",
    jobs: int | None = None,
    address: str | None = None,
    progress: Progress = no_progress,
) -> Diagnosis:
    r"""Estimate from a log whether its cascade can be learned, and what the rule saves.

    Parameters
    ----------
    log : Log
        The outputs of every arm in past rounds.
    cascade : Cascade
        The costs of the arms, in units of one error.
    degree : int
        Degree, 1 to 4, of the polynomial in the scaled context that models disagreement.
    sample : int
        Maximum number of rows to hold in memory and to fit models on.
    seed : int
        Seed of the sample of rows. The same log and seed give the same diagnosis.
    by : str, optional
        Column to group by; the rows with each of its values are also diagnosed separately.
    executor, jobs, address
        Where the groups of ``by`` are diagnosed (see `make_executor`). Every worker reads the log
        itself.
    progress : callable, optional
        Called as ``progress(stage, done, of)``.

    Raises
    ------
    InvalidLogError
        If too few rows have the outputs of all arms, or no label ever equals an output.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     rows = "0.1,cat,cat\n0.9,cat,dog\n0.2,dog,dog\n" * 40
    ...     _ = path.write_text("context.blur,output.small,output.large\n" + rows)
    ...     diagnosis = diagnose(Log(path), Cascade([0.01, 0.3]))
    >>> diagnosis.verdict.answer
    'labels needed'
    >>> [round(arm.stops.value, 2) for arm in diagnosis.arms]
    [0.67, 0.33]
    """
    if cascade.n_arms != len(log.arms):
        raise InvalidParameterError(
            f"the log has {len(log.arms)} arms ({', '.join(log.arms)}), but the cascade has "
            f"{cascade.n_arms}; pass one cost per arm of the log"
        )
    degree = checks.integer("degree", degree, least=1, most=MAX_DEGREE)
    sample = checks.integer("sample", sample, least=LEAST_ROWS)
    if cascade.names != log.arms:
        cascade = Cascade(cascade.costs, log.arms, cascade.tradeoff)
    answers = Vocabulary(log.arms)
    chunks = answers.watch(log.chunks(progress=progress))
    surveyed = survey(chunks, cascade.n_arms, sample=sample, seed=seed)
    _check(log, surveyed, answers.label_mismatch())
    rows = surveyed.sample
    model = Disagreement(
        cascade, rows.contexts, rows.differ, degree=degree, sees=log.sees, progress=progress
    )
    progress("estimating", 0, 2)
    predicted = model.out_of_sample
    stops = plug_in.plug_in_stops(cascade, predicted)
    random = np.random.default_rng([seed, STREAM, 1])
    draws = model.draw_models(rows.contexts, DRAWS, random)
    saving = plug_in.saving(cascade, stops, rows.differ, draws, model.flattest_predictions())
    progress("estimating", 1, 2)
    labels = audit = None
    labelled = complete_agreement(surveyed.audited, rows)
    if surveyed.audited.n >= checks.ENOUGH:
        labels = model.predict(labelled.contexts, _halves(labelled, rows, model)), labelled.wrong
        added = 0 if labelled is surveyed.audited else int((~labelled.differ.any(axis=1)).sum())
        audit = read_audit(cascade, *labels, added)
    plan = plan_labels(cascade, rows, labelled, stops)
    wrong = None if labels is None else labels[1]
    arms = plug_in.summarise_arms(cascade, surveyed.answered, stops, rows.differ, wrong)
    calibration = reliability(predicted, rows.differ, model.n_features)
    pairs = _pairs(cascade, surveyed, calibration, labelled)
    higher_degree = None
    if needs_other_models(pairs, audit):
        higher_degree = better_degree(cascade, rows, degree, sees=log.sees)
    one_error = error_cost(cascade)
    recommendation = recommend_option(cascade, stops, rows.differ, audit, plan, arms)
    evidence = Evidence(
        arms=tuple(in_unit(arm, one_error) for arm in arms),
        pairs=tuple(in_unit(pair, one_error) for pair in pairs),
        saving=in_unit(saving, one_error),
        plan=in_unit(plan, one_error),
        recommendation=recommendation,
        audit=None if audit is None else in_unit(audit, one_error),
        higher_degree=higher_degree,
        one_error=one_error,
    )
    points = plug_in.frontier(cascade, predicted, rows.differ, labels)
    logged = float(cascade.cumulative @ -np.diff(surveyed.answered, append=0) / surveyed.rows)
    warnings = (f"Warning: {warning}." for warning in answers.warnings(cascade))
    diagnosis = Diagnosis(
        log=log.path.name,
        rows=surveyed.rows,
        used=rows.n,
        full_depth=surveyed.full_depth,
        labelled=answers.labelled,
        logged_cost=one_error * logged,
        error_cost=one_error,
        arms=tuple(evidence.arms),
        context=tuple(log.context),
        pairs=tuple(evidence.pairs),
        saving=evidence.saving,
        frontier=tuple(in_unit(point, one_error) for point in points),
        audit=evidence.audit,
        plan=evidence.plan,
        verdict=judge(evidence),
        recommendation=recommendation,
        answers=answers.table(),
        notes=(*warnings, *_notes(log, surveyed, cascade, answers.labelled, audit)),
        columns=log.encoding.describe(),
        seed=seed,
        degree=degree,
        over_time=over_time(rows, cascade.pairs(), predicted),
    )
    progress("estimating", 2, 2)
    if by is None:
        return diagnosis
    work = [partial(_tenant, cascade, degree, sample, seed)]
    with make_executor(executor, jobs, address) as workers:
        findings = dict(map_partitions(workers, log, by, work, "diagnosing", progress))
    tenants = [msgspec.structs.replace(findings[name], name=name) for name in sorted(findings)]
    tenants.sort(key=lambda tenant: -tenant.saving.per_round.value if tenant.saving else np.inf)
    return msgspec.structs.replace(diagnosis, by=by, tenants=tuple(tenants))


def _tenant(
    cascade: Cascade, degree: int, sample: int, seed: int, log: Log, progress: Progress
) -> TenantFinding:
    try:
        diagnosis = diagnose(
            log, cascade, degree=degree, sample=sample, seed=seed, progress=progress
        )
    except InvalidLogError as error:
        return TenantFinding("", log.rows or 0, None, None, str(error))
    return TenantFinding("", diagnosis.rows, diagnosis.verdict.answer, diagnosis.saving)


def _check(log: Log, surveyed: LogSurvey, mismatch: str | None) -> None:
    """Raise if a log has too few complete rows, or if no label equals any output."""
    if surveyed.sample.n < LEAST_ROWS:
        raise InvalidLogError(
            f"{log.path.name}: only {surveyed.sample.n} rows have the outputs of all "
            f"{len(log.arms)} arms, and a diagnosis needs at least {LEAST_ROWS}; log more rounds "
            "that run every arm, or leave out arms that rarely answered"
        )
    if mismatch is not None:
        raise InvalidLogError(f"{log.path.name}: {mismatch}, or name another column as the label")


def _pairs(
    cascade: Cascade, surveyed: LogSurvey, calibration: tuple[Reliability, ...], labelled: Sample
) -> tuple[PairSummary, ...]:
    pairs: list[PairSummary] = []
    for k, (i, j) in enumerate(cascade.pairs()):
        n = int(surveyed.pair_rows[k])
        gap = float(cascade.gaps[i, j])
        rate = wilson(int(surveyed.pair_differ[k]), n)
        gain = gain_on_disagreement(labelled, k, i, j)
        pairs.append(PairSummary(i, j, gap, n, rate, calibration[k], gain))
    return tuple(pairs)


def _halves(labelled: Sample, rows: Sample, model: Disagreement) -> Ints:
    """Return the half of the sample (0 or 1) that contains each labelled row, else any half."""
    order = np.argsort(rows.number)
    position = np.searchsorted(rows.number[order], labelled.number)
    position = order[np.minimum(position, len(order) - 1)]
    inside = rows.number[position] == labelled.number
    return np.where(inside, model.half[position], labelled.number % 2)


def _notes(
    log: Log, surveyed: LogSurvey, cascade: Cascade, labelled: int, audit: Audit | None
) -> tuple[str, ...]:
    notes = [f"Costs are {describe_unit(error_cost(cascade))}.", INTERVALS_NOTE, RULE_NOTE]
    if surveyed.sample.n < surveyed.full_depth:
        notes.append(
            f"Models, shares and savings use a random sample of {surveyed.sample.n:,} of the "
            f"{surveyed.full_depth:,} rows with every output."
        )
    if surveyed.full_depth < surveyed.rows:
        incomplete = surveyed.rows - surveyed.full_depth
        notes.append(
            f"{incomplete:,} of {surveyed.rows:,} rows stop before {cascade.names[-1]}. The sample "
            "is balanced: the share of rows in which the policy decided to stop at an arm is the "
            "same as in the log. This is unbiased if rows went deeper at random, as in forced "
            "full-depth rounds; it cannot represent kinds of rows that never went deeper. "
            "Disagreement rates of a pair use all rows that both arms answered."
        )
    if log.sees is not None:
        notes.append(
            "Each arm is evaluated with the context available at that arm; values that later "
            "stages reveal are not used."
        )
    if labelled:
        assumed = "They are assumed to be a random sample of"
        assumption = f"{assumed} all rows; labels of only the hard cases would be misleading."
        if audit is not None and audit.differing:
            assumption = (
                "Arms disagree in most of them. "
                f"{assumed} the rows in which arms disagree. {SHARED}"
            )
        notes.append(
            f"Labels: {labelled:,} rows, {surveyed.labelled_deep:,} of them with every output. "
            f"{assumption}"
        )
        if surveyed.audited.n < checks.ENOUGH:
            notes.append(
                f"Fewer than {checks.ENOUGH} labelled rows have every output: too few to use."
            )
    return tuple(notes)
