"""What a cell of our CSV files may hold. The audit log's file is no spreadsheet: it is checked
against hashes, and every value in it stays as it is."""

# A cell that begins with one of these is, or becomes when it is pasted, a formula.
_BEGINS_A_FORMULA = tuple("=+-@\t\r\n")


def spreadsheet_cell(value: object) -> object:
    """Escape text that begins like a formula, so that it is none for a spreadsheet that opens the
    file; a number that came as text stays one."""
    if isinstance(value, str) and value.startswith(_BEGINS_A_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()
