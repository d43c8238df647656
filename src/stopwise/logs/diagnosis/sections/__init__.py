"""The sections of the report: each file has their text, their numbers and their pictures."""

from stopwise.logs.diagnosis.findings import Diagnosis
from stopwise.logs.diagnosis.sections.disagreement import disagreement, reliability
from stopwise.logs.diagnosis.sections.labels import labels
from stopwise.logs.diagnosis.sections.panel import ReportSection
from stopwise.logs.diagnosis.sections.saving import frontier, saving


def sections(diagnosis: Diagnosis) -> tuple[ReportSection, ...]:
    """Return the sections of the page, in order."""
    every = (saving, frontier, disagreement, reliability, labels)
    return tuple(section(diagnosis) for section in every)
