"""Dates said in a text ("yesterday", "last May", "去年三月") as calendar days.

We find the phrase and choose its span; reading an English one is dateparser's work, against the
note's own ``at``. Chinese ones are read here: dateparser reads 13 of the 31 forms that we tried, and
jionlp, which reads nearly all, installs 220 MB. What no calendar holds ("十万年前") is left alone.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from engramma.errors import InvalidInput
from engramma.note import SaidDate

_MONTH = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec"
)
_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_COUNT = r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_EN = re.compile(
    rf"""\b(?:
      \d{{4}}-\d{{1,2}}-\d{{1,2}} | \d{{1,2}}/\d{{1,2}}/\d{{4}}
    | (?:\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTH})|(?:{_MONTH})\.?\s+\d{{1,2}}(?:st|nd|rd|th)?)\b(?:,?\s*\d{{4}})?
    | (?:{_MONTH})(?:\s+of)?,?\s+\d{{4}}
    | (?:the\s+day\s+before\s+)?yesterday | (?:the\s+day\s+after\s+)?tomorrow | today | tonight | last\s+night
    | this\s+(?:morning|afternoon|evening)
    | (?:last|next|this)\s+(?:{_DAY}|{_MONTH}|week|weekend|month|year)
    | (?:{_COUNT})\s+(?:days?|weeks?|months?|years?)\s+ago
    | (?:in|since|during|of)\s+(?:(?:19|20)\d\d|(?:{_MONTH})(?!(?:\s+of)?,?\s+\d{{4}}))
    | in\s+(?:{_COUNT})\s+(?:days?|weeks?|months?|years?)
    | (?:on\s+)(?:{_DAY})
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_NUM = "[0-9零〇一二两三四五六七八九十]"
_ZH = re.compile(
    rf"""\d{{4}}年(?:{_NUM}{{1,3}}月(?:{_NUM}{{1,3}}[日号])?)?
    | (?:去年|前年|今年|明年|后年)(?:{_NUM}{{1,3}}月(?:份|{_NUM}{{1,3}}[日号])?)?
    | (?:上个?月|这个?月|下个?月)(?:{_NUM}{{1,3}}[日号])?
    | {_NUM}{{1,3}}月{_NUM}{{1,3}}[日号]
    | 上周末|这周末|下周末|周末 | 半年前
    | (?<![0-9个一二三四五六七八九十]){_NUM}{{1,2}}月(?:份)?(?![0-9一二三四五六七八九十])
    | 大前天|前天|昨[天日晚夜]|今[天日早晚]|明[天日早晚]|大后天|后天
    | (?:上上|上|这|下)(?:个)?(?:周|星期|礼拜)[一二三四五六日天]?
    | (?<!每)(?:周|星期|礼拜)[一二三四五六日天](?![0-9一二三四五六七八九十])
    | (?<![百千万亿0-9零〇一二两三四五六七八九十]){_NUM}{{1,3}}(?:天|个?星期|周|个月|年)前""",
    re.VERBOSE,
)
_DIGIT = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_MOST = 8


def said_dates(text: str, at: datetime) -> tuple[SaidDate, ...]:
    """The dates said in a text, in order, each as days in the time zone of ``at``."""
    found = [(m.start(), _english(m.group(), at, _tense(text, m.span()))) for m in _EN.finditer(text)]
    found += [(m.start(), _chinese(m.group(), at, _tense(text, m.span()))) for m in _ZH.finditer(text)]
    spans = {span: SaidDate(*span) for _, span in sorted(found, key=lambda item: item[0]) if span}
    return tuple(spans.values())[:_MOST]


Span = tuple[str, date, date]
PAST, OPEN, COMING = -1, 0, 1
_AROUND = 150  # characters of a clause that are looked at on either side
_COMING = re.compile(
    r"\b(?:will|shall|going to|plans? to|opens|starts|due|until|deadline|tickets?|booked|signed up|"
    r"postponed|rescheduled|scheduled)\b|'ll\b|要(?!是|求)|(?<![开聚约宴年社大机])会(?!议|员|计|场|面|见)|打算|准备|将(?!军)|想(?!起|到|念)|订了|预订|报名|报了|定在|定了|机票|之前|目标",
    re.IGNORECASE,
)
_PRESENT = re.compile(  # of a timetable or an appointment: "my flight leaves on Friday"
    r"\b(?:leaves?|departs?|arrives?|flies|lands?|begins?|start|appointment|interview|exam|(?:i|we) have|has|"
    r"(?:i'm|i am|we're|we are|he's|she's|is|are) (?:leaving|flying|going|meeting|visiting|starting|moving|coming|having))\b",
    re.IGNORECASE,
)
_GOVERNED = re.compile(r"\b(?:to|for|by|until|before)\s+(?:the\s+)?$", re.IGNORECASE)  # "moved to 1 July"
_PAST = re.compile(r"\b(?:was|were|went|had|did|met|came|got|saw|took|gave|began|ate|ran|bought|\w{3,}ed)\b|了|过", re.IGNORECASE)


def of_the_past(text: str) -> bool:
    """Whether a question asks for what was: "What did I do today?", not "What is on today?"."""
    return _PAST.search(text) is not None and _COMING.search(text) is None


def _tense(text: str, span: tuple[int, int]) -> int:
    """Whether the clause around a phrase speaks of what was or of what is to come; OPEN if unclear."""
    before, after = text[max(0, span[0] - _AROUND) : span[0]], text[span[1] : span[1] + _AROUND]
    clause = re.split(r"[.!?;。！？；]", before)[-1] + re.split(r"[.!?;。！？；]", after)[0]
    if _COMING.search(clause) or _GOVERNED.search(before):
        return COMING
    if _PAST.search(clause):
        return PAST
    planned = text[slice(*span)].startswith("on ") and re.search(r"\b(?:is|are)\s+$", before)
    return COMING if planned or _PRESENT.search(clause) else OPEN


def _parse(phrase: str, at: datetime) -> tuple[date, str] | None:
    from dateparser.date import DateDataParser

    settings = {"RELATIVE_BASE": at.replace(tzinfo=None), "PREFER_DATES_FROM": "past", "PREFER_DAY_OF_MONTH": "first"}
    try:
        data = DateDataParser(languages=["en"], settings=settings).get_date_data(phrase)
    except (OverflowError, ValueError):  # a year that datetime cannot hold
        return None
    return (data.date_obj.date(), data.period) if data.date_obj else None


def _english(phrase: str, at: datetime, tense: int = OPEN) -> Span | None:
    if phrase.startswith("may"):
        return None  # "you may 5 times": the month is written with a capital
    try:
        return _english_span(phrase, at, tense)
    except (ValueError, OverflowError):  # beyond the calendar's ends
        return None


def _english_span(phrase: str, at: datetime, tense: int) -> Span | None:
    words = " ".join(phrase.lower().replace(".", "").split())
    bare = re.sub(
        r"^(?:since|during|of|on|in(?! (?:\d|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b))\s+",
        "",
        words,
    )
    bare = bare.replace(" of ", " ")
    day = at.date()
    if bare.endswith(" weekend"):
        saturday = day - timedelta(days=(day.weekday() - 5) % 7 or 7) if bare.startswith("last") else None
        saturday = saturday or day + timedelta(days=(5 - day.weekday()) % 7 + 7 * bare.startswith("next"))
        return phrase, saturday, saturday + timedelta(days=1)
    if bare.split()[0] in ("last", "next", "this") and bare.split()[-1] in _MONTH.split("|"):
        return _named_month(phrase, bare, day)
    parsed = _parse(bare, at)
    if parsed is None:
        return None
    start, period = parsed
    if bare in _DAY.split("|"):
        while tense == COMING and start <= day:
            start += timedelta(days=7)
    elif not re.search(r"\d{4}|ago|last|next|this|day|night|tomorrow|^in ", bare):
        start = _in_year(start, day, tense)  # "3 April" in March is next month, not last year
    period = "day" if re.search(r"\bdays? ago|\bweeks? ago", bare) else period
    if re.fullmatch(rf"(?:{_MONTH})(?: \d{{4}})?", bare):
        period = "month"
    return phrase, *_span(start, _period(bare, period))


def _in_year(start: date, day: date, tense: int) -> date:
    """The same day and month in the year that is nearest to ``day`` and fits the tense.

    Raises ValueError when no near year has that day (29 February).
    """
    years = [year for year in (day.year - 1, day.year, day.year + 1) if 1 <= year <= 9999]
    days = [start.replace(year=year) for year in years if start.day <= monthrange(year, start.month)[1]]
    fitting = [one for one in days if tense == OPEN or (one - day).days * tense >= -31 * (start.day == 1)]
    return min(fitting or days, key=lambda one: abs(one - day))


def _named_month(phrase: str, bare: str, day: date) -> Span | None:
    parsed = _parse(f"1 {bare.split()[-1]} {day.year}", datetime(day.year, 1, 1))
    if parsed is None:
        return None
    month = parsed[0].month
    step = {"last": -1 if month >= day.month else 0, "next": 1 if month <= day.month else 0, "this": 0}
    return phrase, *_span(date(day.year + step[bare.split()[0]], month, 1), "month")


def _period(bare: str, period: str) -> str:
    for unit in ("week", "month", "year"):
        if re.search(rf"^(?:last|next|this) {unit}$|\b{unit}s? ago$", bare):
            return "day" if unit == "week" and "ago" in bare else unit
    return period


def _span(start: date, period: str) -> tuple[date, date]:
    match period:
        case "year":
            return start.replace(month=1, day=1), start.replace(month=12, day=31)
        case "month":
            return start.replace(day=1), start.replace(day=monthrange(start.year, start.month)[1])
        case "week":
            monday = start - timedelta(days=start.weekday())
            return monday, monday + timedelta(days=6)
        case _:
            return start, start


def _number(text: str) -> int:
    """A number below one hundred, in digits or Chinese numerals."""
    if text.isdigit():
        return int(text)
    if "十" in text:
        tens, _, ones = text.partition("十")
        return (_DIGIT.get(tens, 1)) * 10 + _DIGIT.get(ones, 0)
    return int("".join(str(_DIGIT[char]) for char in text))


_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1, "后年": 2}
_DAYS = {"大前天": -3, "前天": -2, "昨": -1, "今": 0, "明": 1, "后天": 2, "大后天": 3}
_WEEKS = {"上上": -14, "上": -7, "这": 0, "下": 7}


def _chinese(phrase: str, at: datetime, tense: int = OPEN) -> Span | None:
    try:
        span = _chinese_span(phrase, at.date(), tense)
    except (ValueError, OverflowError):  # the 31st of a month that has thirty days
        return None
    return (phrase, *span) if span else None


def _chinese_span(phrase: str, day: date, tense: int) -> tuple[date, date] | None:
    if phrase.endswith("周末"):
        monday = day - timedelta(days=day.weekday()) + timedelta(days=_WEEKS.get(phrase[0], 0))
        return monday + timedelta(days=5), monday + timedelta(days=6)
    if phrase == "半年前":
        return _ago(day, 6, "个月")
    if ago := re.fullmatch(rf"({_NUM}+)(天|个?星期|周|个月|年)前", phrase):
        return _ago(day, _number(ago[1]), ago[2])
    if week := re.fullmatch(r"(上上|上|这|下)?个?(?:周|星期|礼拜)([一二三四五六日天])?", phrase):
        return _week(day, week[1], week[2], tense)
    for word, shift in sorted(_DAYS.items(), key=lambda item: -len(item[0])):
        if phrase.startswith(word) and not phrase.startswith(("今年", "明年")):
            moved = day + timedelta(days=shift)
            return moved, moved
    return _year_month_day(phrase, day, tense)


def _ago(day: date, count: int, unit: str) -> tuple[date, date]:
    if unit == "天":
        return _span(day - timedelta(days=count), "day")
    if unit == "年":
        return _span(day.replace(year=day.year - count, day=1), "year")
    if unit == "个月":
        months = day.year * 12 + day.month - 1 - count
        return _span(date(months // 12, months % 12 + 1, 1), "month")
    return _span(day - timedelta(weeks=count), "day")


def _week(day: date, which: str | None, weekday: str | None, tense: int) -> tuple[date, date]:
    monday = day - timedelta(days=day.weekday()) + timedelta(days=_WEEKS[which or "这"])
    if weekday is None:
        return _span(monday, "week")
    named = monday + timedelta(days="一二三四五六日".index(weekday.replace("天", "日")))
    if which is None and (named - day).days * tense < 0:  # 我周二去看了牙医, said on a Monday
        named += timedelta(days=7 * tense)
    return _span(named, "day")


def _year_month_day(phrase: str, day: date, tense: int) -> tuple[date, date] | None:
    year, month, number = day.year, None, None
    if relative := re.match("|".join(_YEARS), phrase):
        year += _YEARS[relative[0]]
    elif absolute := re.match(r"(\d{4})年", phrase):
        year = int(absolute[1])
    if named := re.search(rf"(?<![0-9])({_NUM}{{1,3}})月", phrase):
        month = _number(named[1])
    elif relative_month := re.match("(上|这|下)个?月", phrase):
        months = year * 12 + day.month - 1 + {"上": -1, "这": 0, "下": 1}[relative_month[1]]
        year, month = months // 12, months % 12 + 1
    if numbered := re.search(rf"月({_NUM}{{1,3}})[日号]", phrase):
        number = _number(numbered[1])
    if month is None:
        return _span(date(year, 1, 1), "year")
    named_day = date(year, month, number or 1)
    if tense != OPEN and re.match(rf"{_NUM}", phrase) and "年" not in phrase:
        named_day = _in_year(named_day, day, tense)
    return _span(named_day, "day" if number else "month")


def moment(value: datetime | date | str | None, name: str = "at") -> datetime:
    """An aware datetime from what a caller gives; None is now, in the local zone.

    A datetime without a zone and a bare date keep their wall clock and are taken as UTC, so no day
    moves. Text is read as ISO 8601 first, then by dateparser ("8 May 2023, 13:56").
    """
    if value is None:
        return datetime.now().astimezone()
    parsed = _as_datetime(value)
    if parsed is None:
        raise InvalidInput(f"{name}={value!r} is not a time: give a datetime or text such as '2026-06-01T09:30:00+02:00'")
    aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    try:
        aware.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"{name}={value!r} lies before year 1 or after 9999 in UTC") from error
    return aware


def _as_datetime(value: datetime | date | str) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    return _read_moment(value) if isinstance(value, str) else None


def last_moment(value: datetime | date | str, name: str) -> datetime:
    """The moment that an upper bound means: of a bare day, its end."""
    bare = isinstance(value, date) and not isinstance(value, datetime)
    if bare or (isinstance(value, str) and re.fullmatch(r"\s*\d{4}-\d\d?-\d\d?\s*", value)):
        return datetime.combine(moment(value, name), time.max, tzinfo=UTC)
    return moment(value, name)


def _read_moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    if re.fullmatch(r"[-+.\d\s]*|.{200,}", text.strip(), re.DOTALL):
        return None  # a bare number is no time
    import dateparser

    now = datetime.now()
    settings: dict[str, Any] = {"RELATIVE_BASE": now, "PREFER_DAY_OF_MONTH": "first"}
    try:
        parsed: datetime | None = dateparser.parse(text, languages=["en", "zh"], settings=settings)
        settings["RELATIVE_BASE"] = now - timedelta(days=1, hours=1)
        again = dateparser.parse(text, languages=["en", "zh"], settings=settings)
    except (ValueError, OverflowError):
        return None
    if parsed is None:
        said = said_dates(text, now.astimezone())
        return datetime.combine(said[0].start, time.min) if said and said[0].text == text.strip() else None
    if parsed.tzinfo or parsed == again:
        return parsed
    return parsed.astimezone()  # "an hour ago" is meant on the local clock


_PERIOD = re.compile(r"\s*(\d{1,9})\s*(?:(h|d|w|m|y)|(hour|day|week|month|year)s?)\s*", re.ASCII | re.IGNORECASE)
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "m": 30 * 24, "y": 365 * 24}
_LONGEST = timedelta(days=365_000)


def period(name: str, value: Any) -> timedelta:
    """A period: "36h", "90d", "12w", "6m" (of 30 days), "1y" or "1 year" (of 365), a timedelta, or 0."""
    found = value if isinstance(value, timedelta) else None
    if value == "0" or (value == 0 and not isinstance(value, bool | float)):
        found = timedelta(0)
    elif isinstance(value, str) and (read := _PERIOD.fullmatch(value)):
        found = timedelta(hours=min(int(read[1]) * _HOURS[(read[2] or read[3])[0].lower()], 10**10))
    if found is None or not timedelta(0) <= found <= _LONGEST:
        raise InvalidInput(
            f"{name}={value!r} is not a period: give a number and a unit such as '90d' (h hours, d days, w weeks, m months of 30 "
            "days, y years of 365; a thousand years at most), a timedelta, or 0"
        )
    return found


def bound(name: str, value: datetime | date | str | None) -> datetime | None:
    """``since`` or ``until`` as a moment: the first of a day given alone, or its last."""
    if value is None:
        return None
    return last_moment(value, name) if name == "until" else moment(value, name)
