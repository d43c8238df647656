"""Words that several verbs share."""


def clock(seconds: float) -> str:
    """Word a time as a clock does.

    Examples
    --------
    >>> clock(7.4), clock(61), clock(7322)
    ('0:07', '1:01', '2:02:02')
    """
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
