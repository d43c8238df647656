"""Why a request is refused: one exception, which every door turns into one shape of answer."""


class Refusal(Exception):
    """A request that is not carried out; nothing has changed.

    Parameters
    ----------
    status : int
        The HTTP status.
    code : str
        For a program: lower-case words joined by _.
    message : str
        For the person who must act.
    field : str, optional
        Where in the body.
    retry_after : int, optional
        Seconds after which trying again makes sense.

    Examples
    --------
    >>> refusal = Refusal(404, "unknown_cascade", "no cascade is called 'triage'")
    >>> refusal.status, str(refusal)
    (404, "no cascade is called 'triage'")
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field
        self.retry_after = retry_after
