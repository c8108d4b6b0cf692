"""The transaction table."""

from recovery.records import Xid
from recovery.uows import ACTIVE, PREPARED, Uow, UowTable


def test_the_table_finds_units_by_number_and_xid() -> None:
    table = UowTable()
    xid = Xid(1, b"g", b"b")
    units = [Uow(3), Uow(1, xid), Uow(2, Xid(1, b"h", b""))]
    for unit in units:
        table.add(unit)
    assert len(table) == 3
    assert table.get(1) is units[1]
    assert table.get(4) is None
    assert table.by_xid(Xid(1, b"g", b"b")) is units[1]
    assert table.by_xid(Xid(2, b"g", b"b")) is None
    table.forget(units[1].number, None)
    table.forget(units[1].number, None)
    assert table.by_xid(xid) is None
    assert [unit.number for unit in table] == [3, 2]


def test_who_holds_the_log_oldest_first_record_first() -> None:
    table = UowTable()
    for number, first in ((1, 800), (2, 0), (3, 96), (4, 400)):
        table.add(Uow(number, first_lsn=first))
    assert [unit.number for unit in table.logged()] == [3, 4, 1]


def test_who_is_in_doubt() -> None:
    table = UowTable()
    for number, state in ((9, PREPARED), (2, ACTIVE), (5, PREPARED)):
        table.add(Uow(number, state=state))
    assert [unit.number for unit in table.in_doubt()] == [5, 9]


def test_the_table_can_be_changed_while_it_is_walked() -> None:
    table = UowTable()
    for number in range(5):
        table.add(Uow(number))
    for unit in table:
        table.forget(unit.number, None)
    assert len(table) == 0
