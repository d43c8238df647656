"""From the answer of a stage to what is compared: a ready-made canonical form.

Two answers agree when their canonical forms are equal. Any function makes that an equivalence, and
an equivalence is what the stopping rule needs: if arms i and j agree, they are right together or
wrong together, so error_i − error_j ≤ P(i and j disagree). "Similar enough" is none: a may be
similar to b and b to c while a and c are not, and then two arms that "agree" may differ in being
right.
"""

import unicodedata

from stopwise.errors import InvalidOutputsError

# Marks that surround an answer and are no part of it. Not among them: signs, "%", "#", "<", and,
# in front, the point of ".5", since answers that differ by these are different answers.
OPENING = "\"'`´“”„‟‘’‚‹›«»([{*_~¡¿"
CLOSING = "\"'`´“”„‟‘’‚‹›«»)]}*_~.,;:!?…。、！？"


def normalised_text(text: str) -> str:
    """Return a text such that answers which differ only in their writing become equal.

    Letters are case-folded and brought to one Unicode form (NFKC), white space is collapsed and
    trimmed, quotes, brackets, emphasis and closing punctuation around the text are removed.

    Examples
    --------
    >>> normalised_text("  **New   York.** ")
    'new york'
    >>> normalised_text("-0.5"), normalised_text("(.5)"), normalised_text("5 %")
    ('-0.5', '.5', '5 %')
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may have no types)
        raise InvalidOutputsError(
            f"normalised_text takes a text, not {text!r}: take the text out of the answer first, "
            "as in canonical=lambda answer: sw.normalised_text(answer['text'])"
        )
    # Folding can leave NFKC, and removing marks can uncover more of either: repeat until stable.
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        bare = " ".join(folded.split()).lstrip(OPENING + " ").rstrip(CLOSING + " ")
        if bare == text:
            return bare
        text = bare
