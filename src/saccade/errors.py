"""Mistakes that a user can repair, and the sentences for them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

QUOTED = 60  # characters of a value that a sentence quotes
LISTED = 30  # names that a sentence lists


class SaccadeError(Exception):
    """A mistake or a broken input that the user can repair: one sentence with the remedy, exit code 2."""


class DamagedFile(SaccadeError):
    """A file whose content no longer matches its checksum."""


def suggest(kind: str, name: object, known: Iterable[str], where: str = "") -> str:
    """The sentence for an unknown name: what was wrong, the nearest valid name, where to look."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name).replace("-", "_"), known, n=1, cutoff=0.5)
    listed = ", ".join(known[:LISTED]) + (f" and {len(known) - LISTED} more" if len(known) > LISTED else "")
    parts = [part.strip() for part in str(name).split(",")]
    if len(parts) > 1 and set(parts) <= set(known):
        hint = f"; several are written with spaces: {' '.join(parts)}."
    else:
        hint = f"; did you mean {near[0]}?" if near else f"; known: {listed or 'none'}."
    return f"no {kind} {quoted(name)}{hint}" + (f" ({where})" if where else "")


# What moves a cursor, sets a title, or turns, hides or joins text is not for pages and terminals; lines and tabs are.
# (The last range are letters that no font shows. Joiners inside of words and emoji, u200c and u200d, stay.)
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Text from outside as it may be shown: control characters become what one would type for them."""
    return HIDDEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 2**8 else f"\\u{number:04x}" if number < 2**16 else f"\\U{number:08x}"


def quoted(value: object) -> str:
    """A value as a sentence shows it: text in quotes, one line, not too long."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = visible(" ".join(text.split()))
    return text if len(text) <= QUOTED else text[:QUOTED] + "…"


def in_words(error: BaseException) -> str:
    """An exception in one line: its kind, and the first line of its text that says anything."""
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
